{{- define "portolan.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Name of cluster-scoped objects. Includes the namespace to avoid conflicts between releases with the same name. */}}
{{- define "portolan.clusterName" -}}
{{- printf "%s:%s" .Release.Namespace (include "portolan.fullname" .) -}}
{{- end -}}

{{- define "portolan.selectorLabels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "portolan.labels" -}}
{{ include "portolan.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: controller
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "portolan.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "portolan.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name is needed when serviceAccount.create is false" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "portolan.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* "true" if the database is SQLite, otherwise empty. */}}
{{- define "portolan.sqlite" -}}
{{- if not (or .Values.database.url .Values.database.existingSecret) -}}true{{- end -}}
{{- end -}}

{{- define "portolan.claimName" -}}
{{- default (printf "%s-catalog" (include "portolan.fullname" . | trunc 53 | trimSuffix "-")) .Values.database.sqlite.persistence.existingClaim -}}
{{- end -}}

{{/* Kubeapps' namespace. Defaults to watchNamespace, so that no other namespace is accessed. */}}
{{- define "portolan.kubeappsNamespace" -}}
{{- coalesce .Values.kubeappsNamespace .Values.watchNamespace .Release.Namespace -}}
{{- end -}}

{{/* Name of the container port that serves metrics. */}}
{{- define "portolan.metricsPort" -}}
{{- if .Values.metrics.port -}}metrics{{- else -}}http{{- end -}}
{{- end -}}

{{- define "portolan.secretVerbs" -}}
[get{{ if .Values.watchSecrets }}, list, watch{{ end }}]
{{- end -}}
