{{/* Refuses combinations of serve's values that cannot work. */}}
{{- define "portolan.validateServe" -}}
{{- if .Values.serve.enabled -}}
{{- if include "portolan.serveEmbedded" . -}}
{{- include "portolan.validateServeEmbedded" . -}}
{{- else -}}
{{- include "portolan.validateServeDeployed" . -}}
{{- end -}}
{{- include "portolan.validateServeMemory" . -}}
{{- end -}}
{{- include "portolan.validateServeRoutes" . -}}
{{- end -}}

{{/* With SQLite, the controller's pod serves. */}}
{{- define "portolan.validateServeEmbedded" -}}
{{- $postgres := "set database.existingSecret or database.url" -}}
{{- if include "portolan.oamOnly" . -}}
{{- printf "serve.enabled needs a database of repositories, which --controllers=oam has not: %s" $postgres | fail -}}
{{- end -}}
{{- if gt (int .Values.serve.replicas) 1 -}}
{{- printf "serve.replicas=%d needs Postgres: %s, because one pod opens a SQLite file" (int .Values.serve.replicas) $postgres | fail -}}
{{- end -}}
{{- if .Values.serve.database.existingSecret -}}
{{- printf "serve.database.existingSecret is another role of Postgres, and the controller uses SQLite: %s too" $postgres | fail -}}
{{- end -}}
{{- if include "portolan.leaderElection" . -}}
{{- printf "serve.enabled with SQLite: a pod that waits for a Lease would serve too; set leaderElection.enabled=false, or for Postgres %s" $postgres | fail -}}
{{- end -}}
{{- with .Values.metrics.port -}}
{{- if eq (int .) 8090 -}}
{{- fail "metrics.port=8090 is the port of the catalog; set another one" -}}
{{- end -}}
{{- end -}}
{{- if and (include "portolan.webhooks" .) (eq (int .Values.oam.webhooks.port) 8090) -}}
{{- fail "oam.webhooks.port=8090 is the port of the catalog; set another one" -}}
{{- end -}}
{{- end -}}

{{/* Refuses what the API server would refuse in the pod, or the kubelet would end it for. */}}
{{- define "portolan.validateServeDeployed" -}}
{{- range $label, $_ := include "portolan.serveLabels" . | fromYaml -}}
{{- if hasKey $.Values.serve.podLabels $label -}}
{{- printf "serve.podLabels: the chart sets %s, by which its objects select the pods; use another label" $label | fail -}}
{{- end -}}
{{- end -}}
{{- with .Values.serve.spool -}}
{{- if gt (include "portolan.number" .limit | float64) (include "portolan.number" .sizeLimit | float64) -}}
{{- printf "serve.spool.limit=%v is larger than its volume, serve.spool.sizeLimit=%v, so that the pod would be evicted" .limit .sizeLimit | fail -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Half of the container is the memory budget of rows and renderings. */}}
{{- define "portolan.validateServeMemory" -}}
{{- $name := ternary "resources" "serve.resources" (eq (include "portolan.serveEmbedded" .) "true") -}}
{{- $resources := ternary .Values.resources .Values.serve.resources (eq $name "resources") -}}
{{- $limit := dig "limits" "memory" "" (default (dict) $resources) -}}
{{- if $limit -}}
{{- if gt (include "portolan.number" .Values.serve.catalogMemory | float64) (divf (include "portolan.number" $limit | float64) 2.0) -}}
{{- printf "serve.catalogMemory=%v is more than half of %s.limits.memory=%v, so that the pod could be killed; raise the limit" .Values.serve.catalogMemory $name $limit | fail -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Refuses routes that lead nowhere. */}}
{{- define "portolan.validateServeRoutes" -}}
{{- range $route := list "ingress" "httpRoute" -}}
{{- if (get $.Values.serve $route).enabled -}}
{{- if not $.Values.serve.enabled -}}
{{- printf "serve.%s.enabled routes to a catalog that is not served; set serve.enabled" $route | fail -}}
{{- end -}}
{{- if not $.Values.serve.externalUrl -}}
{{- printf "serve.%s.enabled needs the host and the path of requests; set serve.externalUrl" $route | fail -}}
{{- end -}}
{{- if regexMatch "^[0-9.]+$|:" (include "portolan.externalHost" $) -}}
{{- printf "serve.%s.enabled routes requests by the name of a host, and serve.externalUrl has an address; set a name" $route | fail -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.serve.httpRoute.enabled (not .Values.serve.httpRoute.parentRefs) -}}
{{- fail "serve.httpRoute.enabled belongs to a Gateway; name it in serve.httpRoute.parentRefs" -}}
{{- end -}}
{{- if and .Values.serve.enabled .Values.networkPolicy.enabled (not .Values.serve.networkPolicy.from) -}}
{{- fail "networkPolicy.enabled admits nobody to the catalog; name its clients, such as the ingress controller, in serve.networkPolicy.from" -}}
{{- end -}}
{{- end -}}
