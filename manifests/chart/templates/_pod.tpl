{{/*
Pod templates. With compatibility container, volumes and paths have the names of the chart prometheus-adapter, so that
extraVolumeMounts and extraArguments that use them still fit.
*/}}

{{- define "fastpath.configFolder" -}}
{{- if include "fastpath.compatible" . -}}/etc/adapter/{{- else -}}/etc/fastpath{{- end -}}
{{- end -}}

{{/* --config. A whole folder, except where the chart prometheus-adapter names the file. */}}
{{- define "fastpath.config" -}}
{{ include "fastpath.configFolder" . }}{{ if include "fastpath.compatible" . }}config.yaml{{ end }}
{{- end -}}

{{- define "fastpath.certificateArgs" -}}
{{- if eq (include "fastpath.tls" .) "selfSigned" -}}
- --cert-dir=/tmp/cert
{{- else -}}
- --tls-cert-file=/var/run/serving-cert/tls.crt
- --tls-private-key-file=/var/run/serving-cert/tls.key
{{- end -}}
{{- end -}}

{{- define "fastpath.serveArgs" -}}
- --secure-port={{ .Values.listenPort | default 6443 }}
{{ include "fastpath.certificateArgs" . }}
- --config={{ include "fastpath.config" . }}
- {{ printf "--prometheus-url=%s" (include "fastpath.prometheusURL" .) | quote }}
- --metrics-relist-interval={{ .Values.metricsRelistInterval | default "1m" }}
- --shutdown-delay=15s
{{- with .Values.logLevel }}
- {{ printf "--v=%v" . | quote }}
{{- end }}
{{- range include "fastpath.groups" . | fromJsonArray }}
- --serve-groups={{ . }}
{{- end }}
{{- if .Values.scaler.enabled }}
- --serve-floors
{{- if .Values.scaler.inProcess }}
- --scaler
{{- range .Values.scaler.extraArguments }}
- {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- range .Values.extraArguments }}
- {{ . | quote }}
{{- end }}
{{- end -}}

{{- define "fastpath.scaleArgs" -}}
- --config={{ include "fastpath.config" . }}
- {{ printf "--prometheus-url=%s" (include "fastpath.prometheusURL" .) | quote }}
- --metrics-relist-interval={{ .Values.metricsRelistInterval | default "1m" }}
- --health-probe-bind-address=:8081
{{- if .Values.serviceMonitor.enabled }}
- --metrics-bind-address=:8443
- --authentication-skip-lookup
{{ include "fastpath.certificateArgs" . }}
{{- end }}
{{- with .Values.logLevel }}
- {{ printf "--v=%v" . | quote }}
{{- end }}
{{- range .Values.extraArguments }}
- {{ . | quote }}
{{- end }}
{{- range .Values.scaler.extraArguments }}
- {{ . | quote }}
{{- end }}
{{- end -}}

{{/* How a Deployment replaces its pods. */}}
{{- define "fastpath.rollout" -}}
{{- if not (has .Values.revisionHistoryLimit (list nil "")) -}}
revisionHistoryLimit: {{ .Values.revisionHistoryLimit }}
{{ end -}}
{{- with .Values.strategy -}}
strategy:
  {{- ternary (omit . "rollingUpdate") . (eq (.type | default "") "Recreate") | toYaml | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* metadata of a pod template. Takes a dict: context, selector (labels as text), container, labels. */}}
{{- define "fastpath.podMetadata" -}}
{{- $context := .context -}}
{{- $values := $context.Values -}}
{{- $labels := dict -}}
{{- if include "fastpath.compatible" $context -}}
{{- $labels = include "fastpath.labels" $context | fromYaml -}}
{{- end -}}
labels:
  {{- mergeOverwrite $labels ($values.customLabels | default dict) ($values.podLabels | default dict) (.labels | default dict) (fromYaml .selector) | toYaml | nindent 2 }}
annotations:
  {{- mergeOverwrite (dict "kubectl.kubernetes.io/default-container" .container) ($values.customAnnotations | default dict) ($values.podAnnotations | default dict) | toYaml | nindent 2 }}
{{- end -}}

{{/*
What the spec of both kinds of pods has: everything but the main container's own part. Takes a dict: context; selector (labels as
text); account; container (name, args, command, ports, probes, resources, as a dict); certificate (whether the pair is mounted);
scheduling (nodeSelector, affinity, tolerations); seconds of grace; hostNetwork.
*/}}
{{- define "fastpath.podSpec" -}}
{{- $context := .context -}}
{{- $values := $context.Values -}}
{{- $compatible := include "fastpath.compatible" $context -}}
{{- $source := include "fastpath.tls" $context -}}
{{- $config := ternary "config" "rules" (eq $compatible "true") -}}
{{- $serving := ternary "volume-serving-cert" "serving-cert" (eq $compatible "true") -}}
{{- $mounted := and .certificate (ne $source "selfSigned") -}}
{{- $tmp := or $compatible (and .certificate (eq $source "selfSigned")) -}}
serviceAccountName: {{ .account | quote }}
automountServiceAccountToken: {{ ternary $values.automountServiceAccountToken true (kindIs "bool" $values.automountServiceAccountToken) }}
enableServiceLinks: false
{{- with $values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
terminationGracePeriodSeconds: {{ .grace }}
{{- if .hostNetwork }}
hostNetwork: true
{{- end }}
{{- with $values.dnsPolicy }}
dnsPolicy: {{ . }}
{{- end }}
{{- with $values.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- with .scheduling.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .scheduling.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .scheduling.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- range . }}
  {{- $selector := dict "labelSelector" (dict "matchLabels" (fromYaml $.selector)) }}
  - {{- ternary . (mergeOverwrite $selector .) (hasKey . "labelSelector") | toYaml | nindent 4 }}
  {{- end }}
{{- end }}
containers:
  - name: {{ .container.name }}
    image: {{ include "fastpath.image" $context | quote }}
    {{- with $values.image.pullPolicy }}
    imagePullPolicy: {{ . }}
    {{- end }}
    {{- with .container.command }}
    command: {{ toJson . }}
    {{- end }}
    args:
      {{- .container.args | nindent 6 }}
    {{- with concat (.container.scales | default false | ternary (list (dict "name" "POD_UID" "valueFrom" (dict "fieldRef" (dict "fieldPath" "metadata.uid")))) list) (default list $values.env) }}
    env:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    ports:
      {{- toYaml .container.ports | nindent 6 }}
    {{- range $kind := list "livenessProbe" "readinessProbe" "startupProbe" }}
    {{- with get $.container $kind }}
    {{ $kind }}:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- end }}
    {{- with .container.resources }}
    resources:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with $values.securityContext }}
    securityContext:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    volumeMounts:
      - name: {{ $config }}
        mountPath: {{ include "fastpath.configFolder" $context }}
        readOnly: true
      {{- if $mounted }}
      - name: {{ $serving }}
        mountPath: /var/run/serving-cert
        readOnly: true
      {{- end }}
      {{- if $tmp }}
      - name: tmp
        mountPath: /tmp
      {{- end }}
      {{- with $values.extraVolumeMounts }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
  {{- with $values.extraContainers }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
volumes:
  # Whole folders, not single files: only then does a change arrive in a running pod.
  - name: {{ $config }}
    configMap:
      name: {{ include "fastpath.rulesName" $context | quote }}
  {{- if $mounted }}
  - name: {{ $serving }}
    secret:
      secretName: {{ include "fastpath.servingName" $context | quote }}
      {{- if not $compatible }}
      defaultMode: 0440
      {{- end }}
  {{- end }}
  {{- if $tmp }}
  - name: tmp
    emptyDir: {}
  {{- end }}
  {{- with $values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}
