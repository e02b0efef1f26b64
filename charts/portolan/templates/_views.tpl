{{/* CUE of a VelaQL view of an Application; takes the function of vela/ql that reads it, and the answer made from what was found. */}}
{{- define "portolan.velaView" -}}
import "vela/ql"

parameter: {
  appName: string
  appNs:   string
  // A component; all if it is missing.
  name?:        string
  cluster?:     string
  clusterNs?:   string
  queryNewest?: bool
}

found: ql.#{{ .function }} & {
  app: {
    name:      parameter.appName
    namespace: parameter.appNs
    filter: {
      if parameter.name != _|_ {components: [parameter.name]}
      if parameter.cluster != _|_ {cluster: parameter.cluster}
      if parameter.clusterNs != _|_ {clusterNamespace: parameter.clusterNs}
      if parameter.queryNewest != _|_ {queryNewest: parameter.queryNewest}
    }
  }
}

if found.err != _|_ {
  status: error: found.err
}
if found.err == _|_ {
  status: {{ .answer }}
}
{{ end -}}

{{/* The answer of the view of pods. A pod that is not scheduled has no node and no addresses. */}}
{{- define "portolan.velaPods" -}}
podList: [for pod in found.list if pod.object != _|_ {
    cluster:   pod.cluster
    component: pod.component
    workload:  pod.workload
    metadata: {
      name:         pod.object.metadata.name
      namespace:    pod.object.metadata.namespace
      creationTime: pod.object.metadata.creationTimestamp
      if pod.object.metadata.labels != _|_ {labels: pod.object.metadata.labels}
      version: {
        if pod.publishVersion != _|_ {publishVersion: pod.publishVersion}
        if pod.deployVersion != _|_ {deployVersion: pod.deployVersion}
      }
    }
    status: {
      phase: pod.object.status.phase
      if pod.object.status.podIP != _|_ {podIP: pod.object.status.podIP}
      if pod.object.status.hostIP != _|_ {hostIP: pod.object.status.hostIP}
      if pod.object.spec.nodeName != _|_ {nodeName: pod.object.spec.nodeName}
    }
  }]
{{- end -}}

{{/* CUE of the VelaQL view that reads a revision. */}}
{{- define "portolan.velaRevisionView" -}}
import "vela/op"

parameter: {
  name:      string
  namespace: *"default" | string
}

found: op.#Read & {
  value: {
    apiVersion: "core.oam.dev/v1beta1"
    kind:       "ApplicationRevision"
    metadata: {
      name:      parameter.name
      namespace: parameter.namespace
    }
  }
}

status: found.value
{{ end -}}
