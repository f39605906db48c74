{{/* Name of the operator's objects in this release. */}}
{{- define "omnipipe.name" -}}
{{- if contains "omnipipe" .Release.Name -}}
{{ .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-omnipipe" .Release.Name | trunc 52 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{- define "omnipipe.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "omnipipe.name" .) }}
{{- end -}}

{{/* Labels by which the operator's pods are selected; they never change. */}}
{{- define "omnipipe.selector" -}}
app.kubernetes.io/name: omnipipe-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "omnipipe.labels" -}}
{{ include "omnipipe.selector" . }}
app.kubernetes.io/component: operator
app.kubernetes.io/part-of: omnipipe
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end -}}

{{/* Reference of an image: call with (list . "operator"). */}}
{{- define "omnipipe.image" -}}
{{- $root := index . 0 -}}
{{- $image := index $root.Values.images (index . 1) -}}
{{- $registry := $root.Values.images.registry -}}
{{- if $registry -}}{{ $registry | trimSuffix "/" }}/{{- end -}}
{{ $image.repository }}:{{ $image.tag | default $root.Chart.AppVersion }}
{{- end -}}

{{/* What the operator may do in a namespace that it looks after. */}}
{{- define "omnipipe.rules" -}}
- apiGroups: [omnipipe.dev]
  resources: [omnipipelines, omnigroups]
  verbs: [get, list, watch]
- apiGroups: [omnipipe.dev]
  resources: [omnigroups]
  verbs: [create, patch, update, delete]
- apiGroups: [omnipipe.dev]
  resources: [omnipipelines/status, omnigroups/status]
  verbs: [get, patch, update]
# Pods are made by Deployments; the operator marks them routable or draining and never makes one.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, patch, delete]
- apiGroups: [""]
  resources: [pods/status]
  verbs: [get, patch]
- apiGroups: [""]
  resources: [configmaps, services, serviceaccounts, persistentvolumeclaims]
  verbs: [get, list, watch, create, patch, update, delete]
# A pipeline's certificates are written and never read.
- apiGroups: [""]
  resources: [secrets]
  verbs: [create, patch, update, delete]
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, update, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, update, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, update, delete]
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [get, list, watch, create, patch, update, delete]
- apiGroups: [resource.k8s.io]
  resources: [resourceclaims, resourceclaimtemplates]
  verbs: [get, list, watch, create, patch, update, delete]
- apiGroups: [keda.sh]
  resources: [scaledobjects]
  verbs: [get, list, watch, create, patch, update, delete]
- apiGroups: [monitoring.coreos.com]
  resources: [podmonitors]
  verbs: [get, list, watch, create, patch, update, delete]
- apiGroups: [gateway.networking.k8s.io]
  resources: [httproutes]
  verbs: [get, list, watch, create, patch, update, delete]
- apiGroups: [cert-manager.io]
  resources: [certificates]
  verbs: [get, list, watch, create, patch, update, delete]
{{- end -}}
