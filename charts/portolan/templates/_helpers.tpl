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
{{- if .Values.watchLabelSelector -}}
{{- include "portolan.fullname" . | trunc 60 | trimSuffix "-" -}}
{{- else -}}portolan{{- end -}}
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

{{/* Refuses combinations of values that cannot work. */}}
{{- define "portolan.validate" -}}
{{- if and (include "portolan.sqlite" .) (not (include "portolan.oamOnly" .)) -}}
{{- $postgres := "set database.existingSecret or database.url, because a SQLite file has one writer" -}}
{{- if gt (int .Values.replicas) 1 -}}
{{- printf "replicas=%d needs Postgres: %s" (int .Values.replicas) $postgres | fail -}}
{{- end -}}
{{- if gt (int .Values.shards) 1 -}}
{{- printf "shards=%d needs Postgres: %s" (int .Values.shards) $postgres | fail -}}
{{- end -}}
{{- end -}}
{{- if and (include "portolan.jobs" .) (not (and .Values.database.url .Values.database.passwordSecret.name)) -}}
{{- fail "syncs as Jobs need Postgres: set database.url and database.passwordSecret, because Jobs get the password by reference" -}}
{{- end -}}
{{- if and .Values.metrics.podMonitor.enabled .Values.metrics.serviceMonitor.enabled -}}
{{- fail "metrics.podMonitor and metrics.serviceMonitor are both enabled, so that each pod would be scraped twice; enable one of them" -}}
{{- end -}}
{{- range .Values.initialRepos -}}
{{- $namespace := include "portolan.repositoryNamespace" (list $ .) -}}
{{- if and $.Values.watchNamespace (ne $namespace $.Values.watchNamespace) -}}
{{- printf "initialRepos: the namespace %s of %s is not watchNamespace" $namespace .name | fail -}}
{{- end -}}
{{- if and .existingSecret (or .authorizationHeader .basicAuth .caCert) -}}
{{- printf "initialRepos: %s has an existingSecret, so it needs no other credentials" .name | fail -}}
{{- end -}}
{{- if and .authorizationHeader .basicAuth -}}
{{- printf "initialRepos: %s has an authorizationHeader and basicAuth; set one of them" .name | fail -}}
{{- end -}}
{{- end -}}
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
