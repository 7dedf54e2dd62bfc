{{/* Name of the application, for labels. */}}
{{- define "mirror-controller.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/*
Name of what is installed, so short that the longest ending still fits into 63 characters. Releases may have dots in their
names, Services may not.
*/}}
{{- define "mirror-controller.fullname" -}}
{{- $name := .Values.nameOverride | default .Chart.Name }}
{{- $both := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) }}
{{- .Values.fullnameOverride | default $both | replace "." "-" | trunc 45 | trimSuffix "-" }}
{{- end }}

{{- define "mirror-controller.namespace" -}}
{{- .Values.namespaceOverride | default .Release.Namespace }}
{{- end }}

{{- define "mirror-controller.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (include "mirror-controller.fullname" .) }}
{{- end }}

{{- define "mirror-controller.selectorLabels" -}}
app.kubernetes.io/name: {{ include "mirror-controller.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Labels of an object. The common ones replace none of the chart's. */}}
{{- define "mirror-controller.labels" -}}
{{ mergeOverwrite (deepCopy .Values.commonLabels) (include "mirror-controller.ownLabels" . | fromYaml) | toYaml }}
{{- end }}

{{- define "mirror-controller.ownLabels" -}}
{{ include "mirror-controller.selectorLabels" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | trunc 63 | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "mirror-controller.image" -}}
{{- with .Values.image -}}
{{ with .registry }}{{ . }}/{{ end }}{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{/* The requirements on labels of namespaces as a label selector, such as "team in (red,blue),!frozen". */}}
{{- define "mirror-controller.namespaceSelector" -}}
{{- $parts := list }}
{{- range .Values.namespaceSelector }}
{{- $values := join "," .values }}
{{- $forms := dict "Exists" .key "DoesNotExist" (printf "!%s" .key)
  "In" (printf "%s in (%s)" .key $values) "NotIn" (printf "%s notin (%s)" .key $values) }}
{{- $parts = append $parts (get $forms .operator) }}
{{- end }}
{{- join "," $parts }}
{{- end }}

{{/*
The arguments of the controller, as a JSON list. Only what differs from the controller's own default stands there, so that
nobody has to read what says nothing. Tests hold these defaults to those in values.yaml, and those to the program's.
*/}}
{{- define "mirror-controller.args" -}}
{{- $v := .Values }}
{{- $args := list "--all-namespaces" }}
{{- if not $v.allNamespaces }}
{{- $args = list (printf "--namespace-prefix=%s" (join "," $v.namespacePrefixes)) }}
{{- end }}
{{- $flags := list
  (list "namespace-selector" (include "mirror-controller.namespaceSelector" .) "")
  (list "exclude-namespace" (join "," $v.excludeNamespaces) "kube-*")
  (list "source-namespace" (join "," $v.sourceNamespaces) "")
  (list "mirror-label" $v.mirrorLabel "mirror")
  (list "instance" $v.instance "default")
  (list "copy-label" (join "," $v.copyLabels) "")
  (list "copy-annotation" (join "," $v.copyAnnotations) "")
  (list "prune" $v.prune "false")
  (list "deletion-grace" $v.deletionGrace "1s")
  (list "resync-period" $v.resyncPeriod "10m")
  (list "concurrent-sources" $v.concurrentSources "8")
  (list "concurrent-writes" $v.concurrentWrites "32") }}
{{- if $v.leaderElection.enabled }}
{{- $args = append $args "--leader-elect" }}
{{- $flags = concat $flags (list
  (list "leader-elect-resource-name" (include "mirror-controller.fullname" .) "mirror-controller")
  (list "leader-elect-lease-duration" $v.leaderElection.leaseDuration "15s")
  (list "leader-elect-renew-deadline" $v.leaderElection.renewDeadline "10s")
  (list "leader-elect-retry-period" $v.leaderElection.retryPeriod "2s")) }}
{{- end }}
{{- $flags = append $flags (list "logging-format" $v.logging.format "text") }}
{{- range $flags }}
{{- /* Not toString, which makes 1e+06 of a million. */}}
{{- $value := kindIs "string" (index . 1) | ternary (index . 1) (toJson (index . 1)) }}
{{- if ne $value (index . 2) }}
{{- $args = append $args (printf "--%s=%s" (index . 0) $value) }}
{{- end }}
{{- end }}
{{- if $v.logging.verbosity }}
{{- $args = append $args (printf "-v=%s" (toString $v.logging.verbosity)) }}
{{- end }}
{{- concat $args $v.extraArgs | toJson }}
{{- end }}

{{/*
The environment of the controller, as a JSON list. GOMEMLIMIT below the limit: the garbage collector works harder before
the kernel has to kill. It is left to extraEnv if that has it, for a name may stand there once.
*/}}
{{- define "mirror-controller.env" -}}
{{- $env := list }}
{{- $own := list }}
{{- range .Values.extraEnv }}{{ $own = append $own .name }}{{ end }}
{{- $limit := dig "limits" "memory" "" .Values.resources | toString }}
{{- if and (regexMatch "^[0-9]+[MG]i$" $limit) (not (has "GOMEMLIMIT" $own)) }}
{{- $mebi := regexFind "^[0-9]+" $limit | int64 | mul (hasSuffix "Gi" $limit | ternary 1024 1) }}
{{- $env = append $env (dict "name" "GOMEMLIMIT" "value" (printf "%dMiB" (div (mul $mebi 9) 10))) }}
{{- end }}
{{- concat $env .Values.extraEnv | toJson }}
{{- end }}

{{/* Ends the rendering where values that are right one by one do not go together, and names them. */}}
{{- define "mirror-controller.check" -}}
{{- if and .Values.admissionPolicy.protectCopies (not .Values.admissionPolicy.publishers) }}
{{- fail "admissionPolicy.protectCopies=true needs admissionPolicy.publishers=true, because it would protect forged copies too" }}
{{- end }}
{{- if and (gt (int .Values.replicaCount) 1) (not .Values.leaderElection.enabled) }}
{{- printf "replicaCount: %d needs leaderElection.enabled=true, because only one replica may write" (int .Values.replicaCount) | fail }}
{{- end }}
{{- if and (not .Values.allNamespaces) (not .Values.namespacePrefixes) }}
{{- fail "namespacePrefixes: must not be empty, for example --set 'namespacePrefixes={team-}'. allNamespaces=true mirrors into every namespace" }}
{{- end }}
{{- if and .Values.allNamespaces .Values.namespacePrefixes }}
{{- fail "namespacePrefixes and allNamespaces=true: set one of the two" }}
{{- end }}
{{- /* No pattern adds up 23h61m. The difference between a time and that time with the grace added does. */}}
{{- $now := now }}
{{- if gt ((mustDateModify .Values.deletionGrace $now).Sub $now).Hours 24.0 }}
{{- printf "deletionGrace: %s: must be 24h at most" .Values.deletionGrace | fail }}
{{- end }}
{{- $values := dict "namespace-prefix" "namespacePrefixes" "all-namespaces" "allNamespaces" "namespace-selector" "namespaceSelector"
  "exclude-namespace" "excludeNamespaces" "copy-label" "copyLabels" "copy-annotation" "copyAnnotations" "mirror-label" "mirrorLabel"
  "instance" "instance" "leader-elect" "leaderElection.enabled" "leader-elect-resource-name" "fullnameOverride"
  "leader-elect-lease-duration" "leaderElection.leaseDuration" "leader-elect-renew-deadline" "leaderElection.renewDeadline"
  "leader-elect-retry-period" "leaderElection.retryPeriod" "source-namespace" "sourceNamespaces" "prune" "prune"
  "deletion-grace" "deletionGrace" "resync-period" "resyncPeriod" "concurrent-sources" "concurrentSources" "concurrent-writes" "concurrentWrites"
  "logging-format" "logging.format" }}
{{- range .Values.extraArgs }}
{{- $flag := regexFind "^--[^=]*" . | trimPrefix "--" }}
{{- with get $values $flag }}
{{- printf "extraArgs: --%s: set the value %s instead, which reaches policies, permissions and alerts too" $flag . | fail }}
{{- end }}
{{- if has $flag (list "metrics-bind-address" "health-probe-bind-address" "leader-elect-resource-namespace") }}
{{- printf "extraArgs: --%s: the chart needs the default" $flag | fail }}
{{- end }}
{{- end }}
{{- end }}

{{/*
The settings that the policies read from the annotations of the ClusterRoleBinding, as a JSON object: the flags that stand
in the arguments, too. An absent one means the default of the flag.
*/}}
{{- define "mirror-controller.settings" -}}
{{- $v := .Values }}
{{- $settings := dict }}
{{- $lines := list }}
{{- range $v.namespaceSelector }}
{{- $lines = append $lines (list .key .operator (join "," .values) | join " " | trimSuffix " ") }}
{{- end }}
{{- $known := list
  (list "namespace-prefix" (join "," $v.namespacePrefixes) "")
  (list "all-namespaces" (toString $v.allNamespaces) "false")
  (list "namespace-selector" (join "\n" $lines) "")
  (list "exclude-namespace" (join "," $v.excludeNamespaces) "kube-*")
  (list "source-namespace" (join "," $v.sourceNamespaces) "")
  (list "mirror-label" $v.mirrorLabel "mirror")
  (list "instance" $v.instance "default")
  (list "prune" (toString $v.prune) "false")
  (list "leader-elect-resource-name" (include "mirror-controller.fullname" .) "mirror-controller") }}
{{- range $known }}
{{- if ne (index . 1) (index . 2) }}
{{- $_ := set $settings (printf "mirror-controller.github.io/%s" (index . 0)) (index . 1) }}
{{- end }}
{{- end }}
{{- $settings | toJson }}
{{- end }}

{{/* The label by which the policies of a release find its ClusterRoleBinding. */}}
{{- define "mirror-controller.installation" -}}
mirror-controller.github.io/installation: {{ include "mirror-controller.fullname" . }}
{{- end }}

{{/*
What a file of deploy/components/admission or deploy/components/protect-copies holds, with the names of this release: takes
a list of the root context and the name of the file. The policies of each release read its own ClusterRoleBinding alone.
*/}}
{{- define "mirror-controller.policy" -}}
{{- $root := index . 0 }}
{{- $fullname := include "mirror-controller.fullname" $root }}
{{- range splitList "\n---\n" ($root.Files.Get (printf "files/%s" (index . 1))) }}
{{- $o := fromYaml . }}
{{- $_ := set $o.metadata "name" (printf "%s%s" $fullname (trimPrefix "mirror-controller" $o.metadata.name)) }}
{{- $_ := set $o.metadata "labels" (include "mirror-controller.labels" $root | fromYaml) }}
{{- with $o.spec.policyName }}
{{- $_ := set $o.spec "policyName" $o.metadata.name }}
{{- $_ := set $o.spec.paramRef.selector "matchLabels" (include "mirror-controller.installation" $root | fromYaml) }}
{{- end }}
---
{{ toYaml $o }}
{{- end }}
{{- end }}

{{/*
A file of alerts, whose commands have the mirror label, with links if the docs are hosted somewhere: takes a list of the root context and the name of the file.
*/}}
{{- define "mirror-controller.alerts" -}}
{{- $root := index . 0 }}
{{- $label := printf "-l %s=" $root.Values.mirrorLabel }}
{{- $alerts := $root.Files.Get (printf "files/%s" (index . 1)) | replace "-l mirror=" $label | fromYaml }}
{{- with $base := $root.Values.prometheusRule.runbookBaseURL }}
{{- range $rule := first $alerts.spec.groups | dig "rules" list }}
{{- $_ := set $rule.annotations "runbook_url" (printf "%stroubleshooting.md#%s" $base (lower $rule.alert)) }}
{{- end }}
{{- end }}
{{- toYaml $alerts }}
{{- end }}

{{/*
Annotations of what `helm test` makes, with this weight: what is lighter comes first. A Pod that failed stays until the
next test, so that its log can be read.
*/}}
{{- define "mirror-controller.testHook" -}}
helm.sh/hook: test
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}
