{{/* The labels of all objects. The first one is what NetworkPolicies of sets know the operator by. */}}
{{- define "spillgate.labels" -}}
{{ include "spillgate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: spillgate
{{- end }}

{{/* The labels by which the operator's pods are found. */}}
{{- define "spillgate.selector" -}}
app.kubernetes.io/name: spillgate-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* What the operator does, and no more. Server-side apply takes get, create and patch. */}}
{{- define "spillgate.rules" -}}
# What users write, and what is said of it.
- apiGroups: [spillgate.dev]
  resources: [pipelines]
  verbs: [list, watch]
- apiGroups: [spillgate.dev]
  resources: [pipelines/status]
  verbs: [patch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
# Processes, and Jobs that measure.
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch]
- apiGroups: [""]
  resources: [pods/log]
  verbs: [get]
# Definitions, and the ConfigMaps that pipelines refer to.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, watch, create, patch, delete]
# Certificates of links. It reads the Secret of its own authorities; rights cannot name it, since its name has the set's.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, create, patch]
# How pods are found, what account they have, who may reach them, how many may be evicted.
- apiGroups: [""]
  resources: [services, serviceaccounts]
  verbs: [get, create, patch]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, create, patch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, create, patch, delete]
{{- end }}
