"""Values of the chart for tests of what it renders: everything on, everything off, and what is between."""

from collections.abc import Mapping

import yaml

from tests.support.rendered import JSON

RULE = {
    "seriesQuery": 'http_requests_total{namespace!="",pod!=""}',
    "resources": {"template": "<<.Resource>>"},
    "metricsQuery": "sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)",
}
RESOURCE = {
    name: {
        "containerQuery": "sum by (<<.GroupBy>>) (a{<<.LabelMatchers>>})",
        "nodeQuery": "sum by (<<.GroupBy>>) (b{<<.LabelMatchers>>})",
        "resources": {"overrides": {"node": {"resource": "node"}}},
        "containerLabel": "container",
    }
    for name in ("cpu", "memory")
}
ALL_RULES = {"default": True, "custom": [RULE], "external": [RULE], "resource": RESOURCE | {"window": "3m"}}

ALL_ON: JSON = {"rules": ALL_RULES} | yaml.safe_load("""
image: {repository: registry.example.com/fastpath, pullPolicy: Always, pullSecrets: [registry]}
customAnnotations: {example.com/team: a}
customLabels: {example.com/team: a}
revisionHistoryLimit: 3
podDisruptionBudget: {enabled: true, maxUnavailable: 1}
startupProbe: {tcpSocket: {port: https}}
nodeSelector: {disk: ssd}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 1
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector: {matchLabels: {app.kubernetes.io/name: fastpath}}
tolerations: [{operator: Exists}]
podLabels: {example.com/pod: a}
podAnnotations: {example.com/pod: a}
deploymentAnnotations: {example.com/deployment: a}
env: [{name: HTTPS_PROXY, value: "http://proxy.example.com"}]
extraContainers: [{name: proxy, image: registry.example.com/proxy}]
extraVolumes: [{name: ca, configMap: {name: ca}}]
extraVolumeMounts: [{name: ca, mountPath: /etc/ca, readOnly: true}]
extraArguments: [--prometheus-verb=POST]
extraManifests: [{apiVersion: v1, kind: ConfigMap, metadata: {name: "{{ .Release.Name }}-extra"}}]
hostNetwork: {enabled: true}
dnsPolicy: ClusterFirstWithHostNet
dnsConfig: {options: [{name: ndots, value: "2"}]}
service:
  annotations: {example.com/team: a}
  type: NodePort
  ipDualStack: {enabled: true, ipFamilies: [IPv4], ipFamilyPolicy: PreferDualStack}
serviceAccount: {annotations: {example.com/role: a}}
rbac:
  useAuthReaderClusterRole: true
  extraRules: [{apiGroups: [example.com], resources: [things], verbs: [get, list, watch]}]
certManager: {enabled: true, caCertRevisionHistoryLimit: 2, certRevisionHistoryLimit: 2}
scaler: {enabled: true, idleScaleDown: {enabled: true}}
boost: {enabled: true}
serviceMonitor: {enabled: true, labels: {release: prometheus}}
dashboards: {enabled: true}
alerts: {enabled: true}
networkPolicy:
  enabled: true
  extraIngress: [{from: [{podSelector: {}}]}]
  extraEgress: [{to: [{podSelector: {}}], ports: [{port: 53}]}]
""")

ALL_OFF: JSON = yaml.safe_load("""
rules: {default: false}
podDisruptionBudget: {enabled: false}
resourceQuota: {enabled: false}
resources: {}
livenessProbe: null
readinessProbe: null
podSecurityContext: null
securityContext: null
topologySpreadConstraints: []
priorityClassName: ""
serviceAccount: {create: false, name: default}
rbac: {create: false}
tls: {insecureSkipTLSVerify: true}
""")

MODE: JSON = {"compatibility": "prometheus-adapter"}

RENDERINGS: Mapping[str, JSON] = {
    "defaults": {},
    "all on": ALL_ON,
    "all off": ALL_OFF,
    "the scaler in process": {
        "scaler": {"enabled": True, "inProcess": True, "idleScaleDown": {"enabled": True}},
        "rules": ALL_RULES,
    },
    "compatible": MODE,
    "compatible, all on": ALL_ON | MODE,
    "compatible, all off": ALL_OFF | MODE,
}
