{{/*
Names, labels and the choices that several templates share.

With `helm upgrade --reuse-values` the values are those of the release's former chart, so any key of this chart can be absent.
Each template includes "fastpath.init" first, which completes them and refuses what cannot work.
*/}}

{{/* What an absent key means. The same as in values.yaml, but for the features that values.yaml enables. */}}
{{- define "fastpath.fallbacks" -}}
alerts: {labels: {}, annotations: {}}
boost: {}
certManager: {}
crd: {create: true, keep: true}
dashboards:
  labels: {grafana_dashboard: "1"}
  annotations: {}
hostNetwork: {}
image: {}
networkPolicy:
  apiServer:
    cidrs: [0.0.0.0/0, "::/0"]
    ports: [443, 6443]
  prometheus:
    namespace: monitoring
    podLabels: {app.kubernetes.io/name: prometheus}
    port: 9090
podDisruptionBudget: {}
prometheus: {}
rbac:
  customMetrics: {resources: ["*"]}
  externalMetrics: {resources: ["*"]}
resourceQuota: {pods: 10}
rules: {}
scaler:
  replicas: 2
  serviceAccount: {create: true}
  podDisruptionBudget: {enabled: true}
  idleScaleDown: {enabled: false}
service: {ipDualStack: {}}
serviceAccount: {}
serviceMonitor:
  interval: 15s
  prometheus: {namespace: monitoring, serviceAccount: prometheus-k8s}
tls: {}
{{- end -}}

{{/* Add keys that are absent or null to a map, recursively; a map of labels or annotations is taken as it is. */}}
{{- define "fastpath.complete" -}}
{{- range $key, $fallback := .fallbacks -}}
{{- if or (not (hasKey $.values $key)) (kindIs "invalid" (get $.values $key)) -}}
{{- $_ := set $.values $key $fallback -}}
{{- else if and (kindIs "map" $fallback) (kindIs "map" (get $.values $key)) (not (regexMatch "(abels|nnotations)$" $key)) -}}
{{- include "fastpath.complete" (dict "values" (get $.values $key) "fallbacks" $fallback) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "fastpath.init" -}}
{{- if not (hasKey .Values "compatibility") -}}
{{- fail "compatibility is not set, so these values come from the release's former chart (--reuse-values): add --set compatibility=prometheus-adapter to replace prometheus-adapter in place" -}}
{{- end -}}
{{- include "fastpath.complete" (dict "values" .Values "fallbacks" (include "fastpath.fallbacks" . | fromYaml)) -}}
{{- if and .Values.boost.enabled (not .Values.scaler.enabled) -}}
{{- fail "boost.enabled needs the scaler, which raises boosted HorizontalPodAutoscalers: set scaler.enabled=true" -}}
{{- end -}}
{{- $budget := .Values.podDisruptionBudget -}}
{{- range $key := list "minAvailable" "maxUnavailable" -}}
{{- $other := get $budget (ternary "maxUnavailable" "minAvailable" (eq $key "minAvailable")) -}}
{{- /* As in the chart prometheus-adapter: "" is absent, and so is 0 beside the other one. */ -}}
{{- if or (eq (get $budget $key | toString) "") (and (eq (get $budget $key | toString) "0") $other) -}}
{{- $_ := set $budget $key nil -}}
{{- end -}}
{{- end -}}
{{- if and $budget.enabled (not (kindIs "invalid" $budget.minAvailable)) (not (kindIs "invalid" $budget.maxUnavailable)) -}}
{{- fail (printf "podDisruptionBudget has minAvailable %v and maxUnavailable %v: Kubernetes takes one of them, set the other to null" $budget.minAvailable $budget.maxUnavailable) -}}
{{- end -}}
{{- if and (eq (include "fastpath.tls" .) "given") (not (and .Values.tls.certificate .Values.tls.key)) -}}
{{- fail "tls.enable needs tls.certificate and tls.key, as PEM" -}}
{{- end -}}
{{- $_ := include "fastpath.image" . -}}
{{- end -}}

{{/* "true" where the objects have the names and labels of the chart prometheus-adapter, else nothing. */}}
{{- define "fastpath.compatible" -}}
{{- if eq (.Values.compatibility | default "") "prometheus-adapter" -}}true{{- end -}}
{{- end -}}

{{- define "fastpath.chartName" -}}
{{- if include "fastpath.compatible" . -}}prometheus-adapter{{- else -}}{{ .Chart.Name }}{{- end -}}
{{- end -}}

{{- define "fastpath.name" -}}
{{- default (include "fastpath.chartName" .) .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "fastpath.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default (include "fastpath.chartName" .) .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "fastpath.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{/* Names of objects that the chart prometheus-adapter has under its full name alone. */}}
{{- define "fastpath.rulesName" -}}
{{- if .Values.rules.existing -}}{{ .Values.rules.existing }}
{{- else -}}{{ include "fastpath.fullname" . }}{{ if not (include "fastpath.compatible" .) }}-rules{{ end }}
{{- end -}}
{{- end -}}

{{- define "fastpath.servingName" -}}
{{- if and .Values.tls.existingSecret (eq (include "fastpath.tls" .) "existing") -}}{{ .Values.tls.existingSecret }}
{{- else -}}{{ include "fastpath.fullname" . }}{{ if not (include "fastpath.compatible" .) }}-serving{{ end }}
{{- end -}}
{{- end -}}

{{- define "fastpath.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "fastpath.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* Name of the scaler's objects; a Service has at most 63 characters. */}}
{{- define "fastpath.scalerName" -}}
{{- printf "%s-scaler" (include "fastpath.fullname" . | trunc 56 | trimSuffix "-") -}}
{{- end -}}

{{/*
The label app.kubernetes.io/name of the pods of the metrics APIs. It alone tells the pods of two releases in a namespace apart, so
that the selectors of the release `fastpath` are those of kustomize. With compatibility the label of the release does that.
*/}}
{{- define "fastpath.podName" -}}
{{- if include "fastpath.compatible" . -}}{{ include "fastpath.name" . }}{{- else -}}{{ include "fastpath.fullname" . }}{{- end -}}
{{- end -}}

{{/* The same of the pods of the scaler; a label has at most 63 characters. */}}
{{- define "fastpath.scalerPodName" -}}
{{- printf "%s-scaler" (include "fastpath.podName" . | trunc 56 | trimSuffix "-") -}}
{{- end -}}

{{/* The account of the pods that scale. */}}
{{- define "fastpath.scalerAccountName" -}}
{{- if .Values.scaler.inProcess -}}{{ include "fastpath.serviceAccountName" . }}
{{- else -}}{{ default (include "fastpath.scalerName" .) .Values.scaler.serviceAccount.name }}
{{- end -}}
{{- end -}}

{{/* "true" where the scaler may write the deletion costs of pods. */}}
{{- define "fastpath.idleScaleDown" -}}
{{- if and .Values.scaler.enabled .Values.scaler.idleScaleDown.enabled -}}true{{- end -}}
{{- end -}}

{{/* Labels of the pods of the metrics APIs, by which Service and Deployment select them. */}}
{{- define "fastpath.selectorLabels" -}}
app.kubernetes.io/name: {{ include "fastpath.podName" . | quote }}
{{- if include "fastpath.compatible" . }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}
{{- end -}}

{{/* The same of the pods of the scaler, which the Service of the metrics APIs must not select. */}}
{{- define "fastpath.scalerSelectorLabels" -}}
app.kubernetes.io/name: {{ include "fastpath.scalerPodName" . | quote }}
{{- if include "fastpath.compatible" . }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}
{{- end -}}

{{- define "fastpath.labels" -}}
{{- $labels := dict
  "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-")
  "app.kubernetes.io/managed-by" .Release.Service
  "app.kubernetes.io/instance" .Release.Name
  "app.kubernetes.io/part-of" (include "fastpath.name" .)
  "app.kubernetes.io/version" (.Chart.AppVersion | toString)
-}}
{{- if include "fastpath.compatible" . -}}
{{- $_ := set $labels "app.kubernetes.io/component" "metrics" -}}
{{- end -}}
{{- mergeOverwrite $labels (.Values.customLabels | default dict) (include "fastpath.selectorLabels" . | fromYaml) | toYaml -}}
{{- end -}}

{{/*
Content of `metadata`. Takes a dict: context; name; namespace, for namespaced objects; labels and annotations, beside those of
every object.
*/}}
{{- define "fastpath.metadata" -}}
name: {{ .name | quote }}
{{- with .namespace }}
namespace: {{ . | quote }}
{{- end }}
{{- with mergeOverwrite dict (.annotations | default dict) (.context.Values.customAnnotations | default dict) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
labels:
  {{- mergeOverwrite (include "fastpath.labels" .context | fromYaml) (.labels | default dict) | toYaml | nindent 2 }}
{{- end -}}

{{/* The API groups that are registered, and so served: those with rules, as in the chart prometheus-adapter. As a JSON list. */}}
{{- define "fastpath.groups" -}}
{{- $groups := list -}}
{{- if or .Values.rules.default .Values.rules.custom -}}{{- $groups = append $groups "custom.metrics.k8s.io" -}}{{- end -}}
{{- if or .Values.rules.external .Values.boost.enabled -}}{{- $groups = append $groups "external.metrics.k8s.io" -}}{{- end -}}
{{- if include "fastpath.servesUsages" . -}}{{- $groups = append $groups "metrics.k8s.io" -}}{{- end -}}
{{- $groups | toJson -}}
{{- end -}}

{{/* "true" where rules.resource has a query. Without one but with `scrape`, pods are scraped, and the API stays with its server. */}}
{{- define "fastpath.servesUsages" -}}
{{- with .Values.rules.resource -}}
{{- $queries := false -}}
{{- $scrapes := false -}}
{{- range list .cpu .memory -}}
{{- if kindIs "map" . -}}
{{- if or .containerQuery .nodeQuery -}}{{- $queries = true -}}{{- end -}}
{{- if .scrape -}}{{- $scrapes = true -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- if or $queries (not $scrapes) -}}true{{- end -}}
{{- end -}}
{{- end -}}

{{- define "fastpath.prometheusURL" -}}
{{- $default := ternary "http://prometheus.default.svc" "http://prometheus-operated.monitoring.svc" (eq (include "fastpath.compatible" .) "true") -}}
{{- tpl (.Values.prometheus.url | default $default) . -}}
{{- with .Values.prometheus.port }}:{{ . }}{{ end -}}
{{- .Values.prometheus.path -}}
{{- end -}}

{{/* "true" where image.repository is a public one of prometheus-adapter, for which the image of this chart is taken. */}}
{{- define "fastpath.replacesImage" -}}
{{- $public := list "(registry[.]k8s[.]io|k8s[.]gcr[.]io)/prometheus-adapter/prometheus-adapter" "(docker[.]io/)?directxman12/k8s-prometheus-adapter(-[a-z0-9]+)?" -}}
{{- if regexMatch (printf "^(%s)$" (join "|" $public)) (.Values.image.repository | default "") -}}true{{- end -}}
{{- end -}}

{{- define "fastpath.image" -}}
{{- /* In Chart.yaml, not in values.yaml, which --reuse-values does not read. */ -}}
{{- $own := index .Chart.Annotations "fastpath.io/image-repository" -}}
{{- $repository := .Values.image.repository | default $own -}}
{{- $tag := .Values.image.tag | default .Chart.AppVersion -}}
{{- if include "fastpath.replacesImage" . -}}
{{- $repository = $own -}}
{{- $tag = .Chart.AppVersion -}}
{{- else if regexMatch "(^|/)(k8s-)?prometheus-adapter[^/]*$" $repository -}}
{{- fail (printf "image.repository %s names the image of prometheus-adapter, which would run the old program: set image.repository, and image.tag if it is set, to those of Fastpath" $repository) -}}
{{- end -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" $repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository $tag -}}
{{- end -}}
{{- end -}}
