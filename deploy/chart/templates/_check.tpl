{{/* Labels of a Pod that runs kubectl mirror check. It does not have the selector's, or it would count as one of the controller. */}}
{{- define "mirror-controller.checkLabels" -}}
{{- omit (include "mirror-controller.labels" . | fromYaml) "app.kubernetes.io/name" | toYaml }}
app.kubernetes.io/name: {{ include "mirror-controller.name" . | trunc 57 | trimSuffix "-" }}-check
{{- end }}

{{/*
The account that runs kubectl mirror check: takes a list of the root context, the end of its name, and annotations. It may
read what check asks for, and impersonate the controller, as whoever may create Pods in this namespace can.
*/}}
{{- define "mirror-controller.checkAccount" }}
{{- $root := index . 0 }}
{{- $fullname := include "mirror-controller.fullname" $root }}
{{- $name := printf "%s-%s" $fullname (index . 1) }}
{{- $namespace := include "mirror-controller.namespace" $root }}
{{- $metadata := dict "name" $name "labels" (include "mirror-controller.labels" $root | fromYaml) }}
{{- with index . 2 }}{{ $_ := set $metadata "annotations" (fromYaml .) }}{{ end }}
{{- $namespaced := merge (dict "namespace" $namespace) $metadata }}
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- toYaml $namespaced | nindent 2 }}
automountServiceAccountToken: false
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  {{- toYaml $metadata | nindent 2 }}
rules:
- apiGroups: [admissionregistration.k8s.io]
  resources: [validatingadmissionpolicybindings]
  verbs: [list]
- apiGroups: [admissionregistration.k8s.io]
  resources: [validatingadmissionpolicies]
  verbs: [get]
- apiGroups: [rbac.authorization.k8s.io]
  resources: [clusterrolebindings]
  verbs: [list]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  {{- toYaml $metadata | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ $name }}
subjects:
- kind: ServiceAccount
  name: {{ $name }}
  namespace: {{ $namespace }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  {{- toYaml $namespaced | nindent 2 }}
rules:
- apiGroups: [apps]
  resources: [deployments]
  verbs: [list]
- apiGroups: [""]
  resources: [serviceaccounts]
  resourceNames: [{{ include "mirror-controller.serviceAccountName" $root }}]
  verbs: [impersonate]
{{- if $root.Values.leaderElection.enabled }}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{{ $fullname }}]
  verbs: [get]
{{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  {{- toYaml $namespaced | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ $name }}
subjects:
- kind: ServiceAccount
  name: {{ $name }}
  namespace: {{ $namespace }}
{{- end }}

{{/*
The Pod that runs it: takes a list of the root context and the end of the account's name.
*/}}
{{- define "mirror-controller.checkPod" -}}
{{- $account := index . 1 }}
{{- with index . 0 }}
{{- $fullname := include "mirror-controller.fullname" . -}}
restartPolicy: Never
serviceAccountName: {{ $fullname }}-{{ $account }}
automountServiceAccountToken: true
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
containers:
- name: check
  image: {{ include "mirror-controller.image" . | quote }}
  {{- with .Values.image.pullPolicy }}
  imagePullPolicy: {{ . }}
  {{- end }}
  command: [/kubectl-mirror]
  args:
  - check
  - --controller=$(NAMESPACE)
  - --confined={{ .Values.admissionPolicy.confined }}
  - --publishers={{ .Values.admissionPolicy.publishers }}
  - --protect-copies={{ .Values.admissionPolicy.protectCopies }}
  env:
  - name: NAMESPACE
    valueFrom:
      fieldRef:
        fieldPath: metadata.namespace
  {{- with .Values.securityContext }}
  securityContext:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  resources:
    requests:
      cpu: 10m
      memory: 64Mi
    limits:
      memory: 256Mi
{{- end }}
{{- end }}
