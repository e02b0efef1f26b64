{{/* "true" if `portolan serve` runs in a Deployment of its own, which a SQLite file does not allow. */}}
{{- define "portolan.serveDeployed" -}}
{{- if and .Values.serve.enabled (not (include "portolan.sqlite" .)) -}}true{{- end -}}
{{- end -}}

{{/* "true" if the controller's process serves the catalog. */}}
{{- define "portolan.serveEmbedded" -}}
{{- if and .Values.serve.enabled (include "portolan.sqlite" .) -}}true{{- end -}}
{{- end -}}

{{- define "portolan.serveName" -}}
{{- printf "%s-serve" (include "portolan.fullname" . | trunc 57 | trimSuffix "-") -}}
{{- end -}}

{{/* Another name than the controller's, whose selectors can't be changed and must not select these pods. */}}
{{- define "portolan.serveSelectorLabels" -}}
app.kubernetes.io/name: {{ printf "%s-serve" (default .Chart.Name .Values.nameOverride | trunc 57 | trimSuffix "-") }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "portolan.serveLabels" -}}
{{ include "portolan.serveSelectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: catalog
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "portolan.serveAccountName" -}}
{{- if .Values.serve.serviceAccount.create -}}
{{- default (include "portolan.serveName" .) .Values.serve.serviceAccount.name -}}
{{- else -}}
{{- required "serve.serviceAccount.name is needed when serve.serviceAccount.create is false" .Values.serve.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* Host of serve.externalUrl, without its port. */}}
{{- define "portolan.externalHost" -}}
{{- (urlParse .Values.serve.externalUrl).hostname | lower -}}
{{- end -}}

{{/* Path of serve.externalUrl. */}}
{{- define "portolan.externalPath" -}}
{{- (urlParse .Values.serve.externalUrl).path | trimSuffix "/" | default "/" -}}
{{- end -}}

{{/* Names of the Service, by which pods of the cluster call it, and serve.allowedHosts. */}}
{{- define "portolan.allowedHosts" -}}
{{- $name := include "portolan.serveName" . -}}
{{- $inNamespace := printf "%s.%s" $name .Release.Namespace -}}
{{- $names := list $name $inNamespace (print $inNamespace ".svc") (print $inNamespace ".svc.cluster.local") -}}
{{- concat $names .Values.serve.allowedHosts | uniq | join "," -}}
{{- end -}}

{{/* Flags that `portolan serve` and `portolan run --serve` share. */}}
{{- define "portolan.serveFlags" -}}
- {{ printf "--allowed-hosts=%s" (include "portolan.allowedHosts" .) | quote }}
{{- with .Values.serve }}
{{- with .externalUrl }}
- {{ printf "--external-url=%s" . | quote }}
{{- end }}
{{- with .anonymous }}
- {{ printf "--anonymous=%s" (join "," .) | quote }}
{{- end }}
{{- with .trustedProxies }}
- {{ printf "--trusted-proxies=%s" (join "," .) | quote }}
{{- end }}
{{- if ne .archives "redirect" }}
- --archives={{ .archives }}
{{- end }}
{{- if ne (int .rate) 50 }}
- --serve-rate={{ int .rate }}
{{- end }}
{{- if ne (int .burst) 200 }}
- --serve-burst={{ int .burst }}
{{- end }}
{{- if ne (int .connections) 4 }}
- --serve-connections={{ int .connections }}
{{- end }}
{{- if ne .catalogMemory "64Mi" }}
- --catalog-memory={{ .catalogMemory }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Rules for what callers need: reviews of tokens and rights. */}}
{{- define "portolan.reviewRules" -}}
- apiGroups: [authentication.k8s.io]
  resources: [tokenreviews]
  verbs: [create]
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]
{{- end -}}

{{/* Flags of requests to the hosts of repositories. */}}
{{- define "portolan.outgoingFlags" -}}
{{- $flags := list -}}
{{- if not .Values.allowPrivateNetworks -}}{{- $flags = append $flags "--allow-private-networks=false" -}}{{- end -}}
{{- if .Values.allowLoopback -}}{{- $flags = append $flags "--allow-loopback" -}}{{- end -}}
{{- if .Values.allowTenantProxies -}}{{- $flags = append $flags "--allow-tenant-proxies" -}}{{- end -}}
{{- with .Values.limits -}}
{{- if ne (int .hostRequestsAtOnce) 8 -}}{{- $flags = append $flags (printf "--host-requests-at-once=%d" (int .hostRequestsAtOnce)) -}}{{- end -}}
{{- if ne (int .hostRequestsPerSecond) 50 -}}{{- $flags = append $flags (printf "--host-requests-per-second=%d" (int .hostRequestsPerSecond)) -}}{{- end -}}
{{- if ne (int .hostBurst) 100 -}}{{- $flags = append $flags (printf "--host-burst=%d" (int .hostBurst)) -}}{{- end -}}
{{- end -}}
{{- if $flags -}}{{- toYaml $flags -}}{{- end -}}
{{- end -}}

{{/* Variables with the login of the database: the reader's, or else the controller's. */}}
{{- define "portolan.serveDatabase" -}}
{{- $reader := .Values.serve.database -}}
{{- $database := ternary $reader .Values.database (ne $reader.existingSecret "") -}}
- name: PORTOLAN_DATABASE_URL
  {{- if $database.existingSecret }}
  valueFrom:
    secretKeyRef:
      name: {{ $database.existingSecret | quote }}
      key: {{ $database.existingSecretKey | quote }}
  {{- else }}
  value: {{ $database.url | quote }}
  {{- end }}
{{- with $database.passwordSecret }}
{{- if .name }}
- name: DB_PASSWORD
  valueFrom:
    secretKeyRef:
      name: {{ .name | quote }}
      key: {{ .key | quote }}
{{- end }}
{{- end }}
{{- end -}}
