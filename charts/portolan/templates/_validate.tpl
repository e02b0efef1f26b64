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
{{- if and .Values.releases.enabled (include "portolan.oamOnly" .) -}}
{{- fail "releases.enabled compares releases with a catalog, which --controllers=oam has not; set releases.enabled=false" -}}
{{- end -}}
{{- if and .Values.metrics.podMonitor.enabled .Values.metrics.serviceMonitor.enabled -}}
{{- fail "metrics.podMonitor and metrics.serviceMonitor are both enabled, so that each pod would be scraped twice; enable one of them" -}}
{{- end -}}
{{- if and (include "portolan.webhooks" .) (semverCompare "<1.28.0-0" .Capabilities.KubeVersion.Version) -}}
{{- printf "oam.webhooks needs Kubernetes 1.28 or newer, and this is %s" .Capabilities.KubeVersion.Version | fail -}}
{{- end -}}
{{- $shard := regexFind "--shard-id[= ][^ ]+" (concat .Values.oam.args .Values.extraArgs | join " ") -}}
{{- if and (include "portolan.webhooks" .) $shard (not (hasSuffix "master" $shard)) -}}
{{- printf "oam.webhooks: the release with %s serves none; enable them in the release of the shard master" $shard | fail -}}
{{- end -}}
{{- if and (include "portolan.velaCompat" .) (not .Values.image.digest) (regexMatch "^v?0\\." (default .Chart.AppVersion .Values.image.tag)) -}}
{{- fail "oam.velaCompat: vela addon takes the image's tag for KubeVela's version; set image.digest, or a tag such as v1.11.0" -}}
{{- end -}}
{{- with .Values.oam.webhooks -}}
{{- if and .enabled (or .caBundle .injectCaFrom) (not .certificateSecret) -}}
{{- fail "oam.webhooks: caBundle and injectCaFrom belong to a certificate of your own; set certificateSecret" -}}
{{- end -}}
{{- if and .enabled .certificateSecret (not (or .caBundle .injectCaFrom)) -}}
{{- fail "oam.webhooks: the API server does not trust certificateSecret without its CA; set caBundle or injectCaFrom" -}}
{{- end -}}
{{- end -}}
{{- include "portolan.validateTimes" . -}}
{{- include "portolan.validatePod" . -}}
{{- include "portolan.validateMonitoring" . -}}
{{- include "portolan.validateServe" . -}}
{{- include "portolan.validateReceivers" . -}}
{{- range .Values.initialRepos -}}
{{- include "portolan.validateRepository" (list $ .) -}}
{{- end -}}
{{- end -}}

{{/* Takes the root and an initial repository. Errors never contain its URL, which may have a password. */}}
{{- define "portolan.validateRepository" -}}
{{- $root := first . -}}
{{- with last . -}}
{{- $namespace := include "portolan.repositoryNamespace" (list $root .) -}}
{{- if and $root.Values.watchNamespace (ne $namespace $root.Values.watchNamespace) -}}
{{- printf "initialRepos: the namespace %s of %s is not watchNamespace" $namespace .name | fail -}}
{{- end -}}
{{- if and .existingSecret (or .authorizationHeader .basicAuth .caCert) -}}
{{- printf "initialRepos: %s has an existingSecret, so it needs no other credentials" .name | fail -}}
{{- end -}}
{{- if regexMatch "^[a-z]+://[^/?#]*@" .url -}}
{{- printf "initialRepos: the URL of %s contains a user or password, which everyone can read in the AppRepository; set basicAuth" .name | fail -}}
{{- end -}}
{{- if include "portolan.jobs" $root -}}
{{- $policy := $root.Values.executor.podTemplate -}}
{{- if and .tolerations (ne $policy "full") -}}
{{- printf "initialRepos: %s has tolerations, which Jobs refuse with executor.podTemplate=%s; remove them, or set it to full" .name $policy | fail -}}
{{- end -}}
{{- if and (or .nodeSelector .securityContext) (eq $policy "none") -}}
{{- printf "initialRepos: %s has a nodeSelector or securityContext, which Jobs ignore with executor.podTemplate=none; remove it, or set that to limited" .name | fail -}}
{{- end -}}
{{- $name := .name -}}
{{- range $field, $value := .securityContext -}}
{{- if not (has $field (list "runAsUser" "runAsGroup" "fsGroup" "supplementalGroups" "runAsNonRoot" "fsGroupChangePolicy" "seccompProfile")) -}}
{{- printf "initialRepos: %s has securityContext.%s, which Jobs refuse; set only IDs of users and groups" $name $field | fail -}}
{{- end -}}
{{- if regexMatch "(^|[[,])0([],]|$)" (toJson $value) -}}
{{- printf "initialRepos: %s has root's ID in securityContext.%s, which Jobs refuse; set another one" $name $field | fail -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .authorizationHeader .basicAuth -}}
{{- printf "initialRepos: %s has an authorizationHeader and basicAuth; set one of them" .name | fail -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Refuses times that contradict each other. */}}
{{- define "portolan.validateTimes" -}}
{{- $times := .Values.leaderElection -}}
{{- $lease := include "portolan.seconds" (default "15s" $times.leaseDuration) | float64 -}}
{{- $deadline := include "portolan.seconds" (default "10s" $times.renewDeadline) | float64 -}}
{{- $period := include "portolan.seconds" (default "2s" $times.retryPeriod) | float64 -}}
{{- if le $lease $deadline -}}
{{- fail "leaderElection.leaseDuration (15s if empty) must be longer than leaderElection.renewDeadline (10s), or two pods would lead at the same time" -}}
{{- end -}}
{{- if or (le $deadline $period) (le $period 0.0) -}}
{{- fail "leaderElection.renewDeadline (10s if empty) must be longer than leaderElection.retryPeriod (2s), and that longer than 0s" -}}
{{- end -}}
{{- $needed := include "portolan.gracePeriod" . | int | add 80 -}}
{{- if and .Values.uninstallHook.enabled (lt (int .Values.uninstallHook.timeoutSeconds) (int $needed)) -}}
{{- printf "uninstallHook.timeoutSeconds=%d is too short with drainTimeout=%s: set at least %d, because the hook waits for the end of the controller" (int .Values.uninstallHook.timeoutSeconds) .Values.drainTimeout $needed | fail -}}
{{- end -}}
{{- with include "portolan.crontabProblem" .Values.crontab -}}
{{- printf "crontab: %s; set a cron expression of five fields such as */10 * * * *, a nickname such as @hourly, or a duration such as 10m" . | fail -}}
{{- end -}}
{{- end -}}

{{/* Refuses what the API server would refuse in the pod, or the kubelet would end it for. */}}
{{- define "portolan.validatePod" -}}
{{- range $label, $_ := include "portolan.labels" . | fromYaml -}}
{{- if hasKey $.Values.podLabels $label -}}
{{- printf "podLabels: the chart sets %s, by which its objects select the pods; use another label" $label | fail -}}
{{- end -}}
{{- end -}}
{{- with .Values.metrics.port -}}
{{- if eq (int .) (int $.Values.service.port) -}}
{{- printf "service.port and metrics.port are both %d, but the Service has a port for each; set another one" (int .) | fail -}}
{{- end -}}
{{- end -}}
{{- if and (include "portolan.webhooks" .) (has (int .Values.oam.webhooks.port) (list 8080 (int (default 0 .Values.metrics.port)))) -}}
{{- printf "oam.webhooks.port=%d is the port of health or metrics; set another one" (int .Values.oam.webhooks.port) | fail -}}
{{- end -}}
{{- if gt (include "portolan.number" .Values.spool.limit | float64) (include "portolan.number" .Values.spool.sizeLimit | float64) -}}
{{- printf "spool.limit=%v is larger than its volume, spool.sizeLimit=%v, so that the pod would be evicted" .Values.spool.limit .Values.spool.sizeLimit | fail -}}
{{- end -}}
{{- end -}}

{{/* Refuses monitors that find nothing. */}}
{{- define "portolan.validateMonitoring" -}}
{{- $policy := .Values.networkPolicy -}}
{{- if and $policy.enabled (not $policy.metricsFrom) -}}
{{- range $monitor := list "podMonitor" "serviceMonitor" -}}
{{- if (get $.Values.metrics $monitor).enabled -}}
{{- printf "networkPolicy.enabled admits nobody to the metrics that metrics.%s promises; name Prometheus in networkPolicy.metricsFrom" $monitor | fail -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The number of a quantity such as 1.5Gi. */}}
{{- define "portolan.number" -}}
{{- if kindIs "string" . -}}
{{- $units := dict "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 "Pi" 1125899906842624.0 -}}
{{- $unit := regexFind "[A-Za-z]+$" . -}}
{{- mulf (trimSuffix $unit . | float64) (ternary 1.0 (get $units $unit) (eq $unit "")) -}}
{{- else -}}{{- . -}}{{- end -}}
{{- end -}}

{{/* What is wrong with a schedule; empty if nothing is. The controller checks rarer mistakes at its start. */}}
{{- define "portolan.crontabProblem" -}}
{{- $nicknames := list "@yearly" "@annually" "@monthly" "@weekly" "@daily" "@hourly" "@always" "@5minutes" "@10minutes" "@15minutes" "@30minutes" "@everysecond" -}}
{{- $text := trim . -}}
{{- $fields := regexSplit "\\s+" $text -1 -}}
{{- if hasPrefix "@" $text -}}
{{- if not (has (lower $text) $nicknames) -}}{{ $text }} is no nickname{{- end -}}
{{- else if regexMatch "^([0-9]+(\\.[0-9]+)?(ns|us|ms|s|m|h))+$" $text -}}
{{- $seconds := include "portolan.seconds" $text | float64 -}}
{{- if or (le $seconds 0.0) (gt $seconds 32140800.0) -}}{{ $text }} is not between 1s and 8928h{{- end -}}
{{- else if lt (len $fields) 5 -}}it has {{ len $fields }} of five fields
{{- else if gt (len $fields) 7 -}}it has {{ len $fields }} fields
{{- else if eq (len $fields) 5 -}}
{{- $problems := list -}}
{{- range $at, $unit := list "minute 0 59" "hour 0 23" "day 1 31" "month 1 12" "weekday 0 7" -}}
{{- $words := splitList " " $unit -}}
{{- range splitList "," (index $fields $at) -}}
{{- $item := . -}}
{{- if not (regexMatch "^[0-9A-Za-z*?/#-]+$" $item) -}}{{- $problems = append $problems (printf "%s %s is not valid" (first $words) $item) -}}{{- end -}}
{{- if regexMatch "/0*$" $item -}}{{- $problems = append $problems (printf "%s %s has no step" (first $words) $item) -}}{{- end -}}
{{- range regexFindAll "[0-9]+" (regexReplaceAll "[/#].*" $item "") -1 -}}
{{- if or (lt (atoi .) (index $words 1 | atoi)) (gt (atoi .) (index $words 2 | atoi)) -}}{{- $problems = append $problems (printf "%s %s is not between %s and %s" (first $words) . (index $words 1) (index $words 2)) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- /* A date that no year has, if its days and months are numbers. */}}
{{- $days := index $fields 2 -}}
{{- $months := index $fields 3 -}}
{{- if and (not $problems) (regexMatch "^[0-9,]+$" $days) (regexMatch "^[0-9,]+$" $months) (has (index $fields 4) (list "*" "?")) -}}
{{- $exists := false -}}
{{- range $month := splitList "," $months -}}
{{- $length := 31 -}}
{{- if eq (atoi $month) 2 -}}{{- $length = 29 -}}{{- else if has (atoi $month) (list 4 6 9 11) -}}{{- $length = 30 -}}{{- end -}}
{{- range splitList "," $days -}}{{- if le (atoi .) $length -}}{{- $exists = true -}}{{- end -}}{{- end -}}
{{- end -}}
{{- if not $exists -}}{{- $problems = append $problems (printf "no month %s has a day %s" $months $days) -}}{{- end -}}
{{- end -}}
{{- join ", " $problems -}}
{{- end -}}
{{- end -}}
