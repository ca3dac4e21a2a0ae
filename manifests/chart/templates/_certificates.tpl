{{/*
Where the serving certificate comes from: one word.

certManager  cert-manager makes the Secret, and writes the caBundle
given        tls.certificate and tls.key
existing     a Secret that exists
selfSigned   each pod makes its own, and the API server does not verify it
generated    this chart makes it once, and takes it from the cluster afterwards
*/}}
{{- define "fastpath.tls" -}}
{{- if .Values.certManager.enabled -}}certManager
{{- else if .Values.tls.enable -}}given
{{- else if .Values.tls.existingSecret -}}existing
{{- else if kindIs "bool" .Values.tls.insecureSkipTLSVerify -}}{{ ternary "selfSigned" "generated" .Values.tls.insecureSkipTLSVerify }}
{{- else if include "fastpath.compatible" . -}}selfSigned
{{- else -}}generated
{{- end -}}
{{- end -}}

{{/*
The generated pair, as a JSON dict of tls.crt, tls.key and ca.crt in base64. The first call of a rendering looks it up or makes it;
the Secret, the ConfigMap and the APIServices then hold the same.

The annotation tells the Secret from one of cert-manager, whose certificate expires soon. The key of the authority is dropped, so
nothing else can be signed with it.
*/}}
{{- define "fastpath.generatedPair" -}}
{{- if not (hasKey .Values "generatedPair") -}}
{{- $name := include "fastpath.servingName" . -}}
{{- $namespace := include "fastpath.namespace" . -}}
{{- $pair := dict -}}
{{- $secret := lookup "v1" "Secret" $namespace $name -}}
{{- if $secret -}}
{{- if get ($secret.metadata.annotations | default dict) "fastpath.io/generated-certificate" -}}
{{- $pair = $secret.data -}}
{{- end -}}
{{- end -}}
{{- if not (and (hasKey $pair "tls.crt") (hasKey $pair "tls.key") (hasKey $pair "ca.crt")) -}}
{{- $service := include "fastpath.fullname" . -}}
{{- $within := printf "%s.%s" $service $namespace -}}
{{- $names := list $service $within (printf "%s.svc" $within) (printf "%s.svc.cluster.local" $within) -}}
{{- $authority := genCAWithKey (printf "%s-ca" $service) 3650 (genPrivateKey "ecdsa") -}}
{{- $certificate := genSignedCertWithKey (printf "%s.svc" $within | trunc 64) nil $names 3650 $authority (genPrivateKey "ecdsa") -}}
{{- $pair = dict "tls.crt" (b64enc $certificate.Cert) "tls.key" (b64enc $certificate.Key) "ca.crt" (b64enc $authority.Cert) -}}
{{- end -}}
{{- $_ := set .Values "generatedPair" (pick $pair "tls.crt" "tls.key" "ca.crt") -}}
{{- end -}}
{{- .Values.generatedPair | toJson -}}
{{- end -}}

{{/* The certificate authorities that signed the serving certificate, in base64; nothing if cert-manager or no one knows them. */}}
{{- define "fastpath.caBundle" -}}
{{- $source := include "fastpath.tls" . -}}
{{- if has $source (list "given" "existing") -}}
{{- .Values.tls.ca | default "" | b64enc -}}
{{- else if eq $source "generated" -}}
{{- get (include "fastpath.generatedPair" . | fromJson) "ca.crt" -}}
{{- end -}}
{{- end -}}

{{/* Name of the cert-manager Certificate whose authority goes into the APIServices. */}}
{{- define "fastpath.injectedCertificate" -}}
{{ include "fastpath.fullname" . }}-{{ ternary "root-cert" "serving" (eq (include "fastpath.compatible" .) "true") }}
{{- end -}}

{{/* tlsConfig of a ServiceMonitor. */}}
{{- define "fastpath.monitorTLS" -}}
{{- $source := include "fastpath.tls" . -}}
{{- if eq $source "selfSigned" -}}
insecureSkipVerify: true
{{- else -}}
serverName: {{ printf "%s.%s.svc" (include "fastpath.fullname" .) (include "fastpath.namespace" .) | quote }}
{{- if or (eq $source "certManager") (include "fastpath.caBundle" .) }}
ca:
  {{ ternary "secret" "configMap" (eq $source "certManager") }}:
    name: {{ printf "%s-serving-ca" (include "fastpath.fullname" .) | quote }}
    key: ca.crt
{{- end }}
{{- end }}
{{- end -}}
