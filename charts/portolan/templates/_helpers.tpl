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

{{/* The default of --application-kinds. */}}
{{- define "portolan.defaultKinds" -}}
- /ConfigMap
- /PersistentVolumeClaim
- /Pod
- /ReplicationController
- /Service
- apps/DaemonSet
- apps/Deployment
- apps/ReplicaSet
- apps/StatefulSet
- autoscaling/HorizontalPodAutoscaler
- batch/CronJob
- batch/Job
- networking.k8s.io/Ingress
- policy/PodDisruptionBudget
{{- end -}}

{{/* Kinds that `*` counts but does not adopt. */}}
{{- define "portolan.protectedKinds" -}}
- /LimitRange
- /ResourceQuota
- /ServiceAccount
- networking.k8s.io/NetworkPolicy
- rbac.authorization.k8s.io/Role
- rbac.authorization.k8s.io/RoleBinding
{{- end -}}

{{/* Kinds that are never granted here: Secrets and what is not namespaced. */}}
{{- define "portolan.ungrantedKinds" -}}
- /Namespace
- /Node
- /PersistentVolume
- /Secret
- apiextensions.k8s.io/CustomResourceDefinition
- rbac.authorization.k8s.io/ClusterRole
- rbac.authorization.k8s.io/ClusterRoleBinding
- storage.k8s.io/StorageClass
{{- end -}}

{{- define "portolan.plural" -}}
{{- $name := lower . -}}
{{- if eq $name "endpoints" -}}{{ $name }}
{{- else if regexMatch "[^aeiou]y$" $name -}}{{ trimSuffix "y" $name }}ies
{{- else if regexMatch "(s|x|z|ch|sh)$" $name -}}{{ $name }}es
{{- else -}}{{ $name }}s
{{- end -}}
{{- end -}}

{{/* Rules for the kinds of a list, one for each API group. */}}
{{- define "portolan.rulesOfKinds" -}}
{{- $groups := dict -}}
{{- range .kinds | uniq | sortAlpha -}}
{{- $group := "" -}}
{{- if contains "/" . -}}{{- $group = splitList "/" . | first -}}{{- end -}}
{{- $resource := include "portolan.plural" (splitList "/" . | last) -}}
{{- $_ := set $groups $group (append (get $groups $group | default list) $resource) -}}
{{- end -}}
{{- $rules := list -}}
{{- range $group := keys $groups | sortAlpha -}}
{{- $rules = append $rules (dict "apiGroups" (list $group) "resources" (get $groups $group) "verbs" $.verbs) -}}
{{- end -}}
{{- if $rules -}}{{- toYaml $rules -}}{{- end -}}
{{- end -}}

{{/* Rules for applications.kinds. */}}
{{- define "portolan.componentRules" -}}
{{- $listed := list -}}
{{- $added := list -}}
{{- $readable := list -}}
{{- range .Values.applications.kinds -}}
{{- if eq . "*" -}}
{{- $readable = include "portolan.protectedKinds" $ | fromYamlArray -}}
{{- else -}}
{{- $kind := trimPrefix "+" . -}}
{{- if not (contains "/" $kind) -}}{{- $kind = print "/" $kind -}}{{- end -}}
{{- if hasPrefix "+" . -}}{{- $added = append $added $kind -}}{{- else -}}{{- $listed = append $listed $kind -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- if not $listed -}}{{- $listed = include "portolan.defaultKinds" $ | fromYamlArray -}}{{- end -}}
{{- $ungranted := include "portolan.ungrantedKinds" $ | fromYamlArray -}}
{{- $kinds := list -}}
{{- range concat $listed $added -}}
{{- if not (has . $ungranted) -}}{{- $kinds = append $kinds . -}}{{- end -}}
{{- end -}}
{{- include "portolan.rulesOfKinds" (dict "kinds" $kinds "verbs" (list "get" "list" "watch" "patch")) -}}
{{- range $kinds -}}{{- $readable = without $readable . -}}{{- end -}}
{{- if $readable }}
{{ include "portolan.rulesOfKinds" (dict "kinds" $readable "verbs" (list "get" "list" "watch")) -}}
{{- end -}}
{{- end -}}
