{{/* "true" if receivers of webhooks run in a Deployment of their own. */}}
{{- define "portolan.receiversDeployed" -}}
{{- if .Values.receivers.enabled -}}true{{- end -}}
{{- end -}}

{{- define "portolan.receiversName" -}}
{{- printf "%s-receivers" (include "portolan.fullname" . | trunc 53 | trimSuffix "-") -}}
{{- end -}}

{{- define "portolan.receiversSelectorLabels" -}}
app.kubernetes.io/name: {{ printf "%s-receivers" (default .Chart.Name .Values.nameOverride | trunc 53 | trimSuffix "-") }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "portolan.receiversLabels" -}}
{{ include "portolan.receiversSelectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: receivers
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "portolan.receiversAccountName" -}}
{{- with .Values.receivers.serviceAccount -}}
{{- if .create -}}
{{- default (include "portolan.receiversName" $) .name -}}
{{- else -}}
{{- required "receivers.serviceAccount.name is needed when receivers.serviceAccount.create is false" .name -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* "true" if the API server can limit the patches of the receivers. */}}
{{- define "portolan.receiversPolicy" -}}
{{- if semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version -}}true{{- end -}}
{{- end -}}

{{/* Refuses values of receivers that cannot work. */}}
{{- define "portolan.validateReceivers" -}}
{{- if .Values.receivers.enabled -}}
{{- $names := list -}}
{{- range .Values.receivers.namespaces -}}
{{- if has .name $names -}}
{{- printf "receivers.namespaces lists %s twice; list its Secrets in one entry" .name | fail -}}
{{- end -}}
{{- if and $.Values.watchNamespace (ne .name $.Values.watchNamespace) -}}
{{- printf "receivers.namespaces: the namespace %s is not watchNamespace" .name | fail -}}
{{- end -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- if not $names -}}
{{- fail "receivers.enabled needs the namespaces whose AppRepositories have receivers; list them in receivers.namespaces" -}}
{{- end -}}
{{- if and .Values.networkPolicy.enabled (not .Values.receivers.networkPolicy.from) -}}
{{- fail "networkPolicy.enabled admits nobody to the receivers; name their clients, such as the ingress controller, in receivers.networkPolicy.from" -}}
{{- end -}}
{{- end -}}
{{- end -}}
