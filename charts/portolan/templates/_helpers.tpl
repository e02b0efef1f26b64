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
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "portolan.uninstallLabels" -}}
app.kubernetes.io/name: {{ printf "%s-uninstall" (default .Chart.Name .Values.nameOverride | trunc 53 | trimSuffix "-") }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
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

{{/* "true" if only KubeVela's Applications are reconciled, which needs no database. */}}
{{- define "portolan.oamOnly" -}}
{{- if and .Values.oam.enabled (has "--controllers=oam" .Values.oam.args) -}}true{{- end -}}
{{- end -}}

{{/* "true" if a pod works only while it holds a Lease. */}}
{{- define "portolan.leaderElection" -}}
{{- if or .Values.leaderElection.enabled (gt (int .Values.replicas) 1) (gt (int .Values.shards) 1) -}}true{{- end -}}
{{- end -}}

{{/* Name of the Leases. Releases with different selectors work at the same time. */}}
{{- define "portolan.leaseName" -}}
{{- $flag := regexFind "--leader-election-name[= ][a-z0-9.-]+" (join " " .Values.extraArgs) -}}
{{- if $flag -}}
{{- regexReplaceAll "^--leader-election-name." $flag "" -}}
{{- else if .Values.watchLabelSelector -}}
{{- include "portolan.fullname" . | trunc 60 | trimSuffix "-" -}}
{{- else -}}portolan{{- end -}}
{{- end -}}

{{/* Name of vela-core's Lease. Empty if flags choose it. */}}
{{- define "portolan.oamLeaseName" -}}
{{- $flags := concat .Values.oam.args .Values.extraArgs | join " " -}}
{{- if not (regexMatch "--(ignore-app-without-controller-version|enable-sharding|shard-id|leader-election-name)" $flags) -}}kubevela{{- end -}}
{{- end -}}

{{/* Rules for Leases; takes the root, and their name without the number of a shard, empty if it is not known. */}}
{{- define "portolan.leaseRules" -}}
{{- $name := .name -}}
{{- $elects := include "portolan.leaderElection" .root -}}
{{- $hasShards := gt (int .root.Values.shards) 1 -}}
{{- $numbered := list -}}
{{- if $name -}}
{{- range until (ternary (int .root.Values.shards) 32 $hasShards) -}}{{- $numbered = append $numbered (printf "%s-%d" $name .) -}}{{- end -}}
{{- end -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  {{- if $name }}
  resourceNames: {{- ternary $numbered (list $name) $hasShards | toYaml | nindent 4 }}
  {{- end }}
  verbs: [get{{ if $elects }}, update{{ end }}]
{{- if and $name (not $hasShards) }}
# Replicas with shards, of before an upgrade without them, have ended.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: {{- toYaml $numbered | nindent 4 }}
  verbs: [get]
{{- end }}
{{- if $elects }}
# The name of an object that is created is not known to the API server's authorizer.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create{{ if $hasShards }}, list{{ if not (include "portolan.oamOnly" .root) }}, delete{{ end }}{{ end }}]
{{- end }}
{{- end -}}

{{/* Seconds of a duration such as 1m30s. */}}
{{- define "portolan.seconds" -}}
{{- $units := dict "ms" 0.001 "s" 1 "m" 60 "h" 3600 -}}
{{- $seconds := 0.0 -}}
{{- range regexFindAll "[0-9.]+(ms|s|m|h)" (toString .) -1 -}}
{{- $seconds = addf $seconds (mulf (regexFind "^[0-9.]+" . | float64) (regexFind "[a-z]+$" . | get $units)) -}}
{{- end -}}
{{- $seconds -}}
{{- end -}}

{{/* Time in which a pod ends: --drain-timeout, or the 25 s of responses to the catalog's callers, and the time to release what it holds. */}}
{{- define "portolan.gracePeriod" -}}
{{- $drain := include "portolan.seconds" .Values.drainTimeout | float64 | ceil | int -}}
{{- if include "portolan.serveEmbedded" . -}}{{- $drain = max $drain 25 -}}{{- end -}}
{{- add $drain 15 -}}
{{- end -}}

{{/* "true" if repositories may be synced by Jobs. */}}
{{- define "portolan.jobs" -}}
{{- if or (eq .Values.executor.mode "job") .Values.executor.allowAnnotation -}}true{{- end -}}
{{- end -}}

{{/* A map of resources as NAME=QUANTITY, separated by commas. */}}
{{- define "portolan.resourceList" -}}
{{- $words := list -}}
{{- range $name, $quantity := . -}}{{- $words = append $words (printf "%s=%s" $name ($quantity | toJson | trimAll "\"")) -}}{{- end -}}
{{- join "," $words -}}
{{- end -}}

{{/* Name of the Service of the webhooks, and of the Secret with their certificate. */}}
{{- define "portolan.webhookService" -}}
{{- printf "%s-webhook" (include "portolan.fullname" . | trunc 55 | trimSuffix "-") -}}
{{- end -}}

{{/* Name of the webhook configurations. */}}
{{- define "portolan.webhookConfiguration" -}}
{{- printf "%s-%s-admission" .Release.Namespace (include "portolan.fullname" .) -}}
{{- end -}}

{{/* "true" if KubeVela's tools find this release in place of vela-core. */}}
{{- define "portolan.velaCompat" -}}
{{- if and .Values.oam.enabled .Values.oam.velaCompat -}}true{{- end -}}
{{- end -}}

{{/* "true" if the webhooks are served. */}}
{{- define "portolan.webhooks" -}}
{{- if and .Values.oam.enabled .Values.oam.webhooks.enabled -}}true{{- end -}}
{{- end -}}

{{/* Namespace of an initial repository; takes the root and the repository. */}}
{{- define "portolan.repositoryNamespace" -}}
{{- $root := first . -}}
{{- coalesce (last .).namespace $root.Values.globalReposNamespace $root.Values.watchNamespace $root.Release.Namespace -}}
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

{{/* Matchers of the series that the chart's own monitor scrapes, with a comma behind; empty without one. */}}
{{- define "portolan.monitoredJob" -}}
{{- $name := include "portolan.fullname" . -}}
{{- if .Values.metrics.podMonitor.enabled -}}
{{- printf `job="%s/%s", ` .Release.Namespace $name -}}
{{- else if .Values.metrics.serviceMonitor.enabled -}}
{{- printf `job="%s", namespace="%s", ` $name .Release.Namespace -}}
{{- end -}}
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
