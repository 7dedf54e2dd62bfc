package plan

import "slices"

// Keys and values of the contract. Manifests, dashboards and scripts of users name them, so they do not change.
const (
	// DefaultLabel is the label key that makes a ConfigMap a source (value [SourceValue]) and marks a copy
	// (value [CopyValue]). --mirror-label replaces the key.
	DefaultLabel = "mirror"
	// SourceValue is the value of the mirror label on a source.
	SourceValue = "true"
	// CopyValue is the value of the mirror label on a copy.
	CopyValue = "copy"
	// OptOutValue is the value of the mirror label on a namespace that accepts no copies.
	OptOutValue = "false"

	// ManagedByLabel and ManagedByValue are the recommended Kubernetes label on every copy.
	ManagedByLabel = "app.kubernetes.io/managed-by"
	ManagedByValue = "mirror-controller"

	// Domain is the prefix of all annotations of this project.
	Domain = "mirror-controller.github.io"

	// SourceAnnotation, on a copy, holds namespace/name of its source.
	SourceAnnotation = Domain + "/source"
	// CopyAnnotation, on a copy, holds namespace/name of the copy itself. The YAML of a copy that somebody applies
	// in another namespace is therefore not ours.
	CopyAnnotation = Domain + "/copy"
	// ChecksumAnnotation, on a copy, holds "sha256:" and the hex digest of everything that was copied.
	ChecksumAnnotation = Domain + "/checksum"
	// InstanceAnnotation, on a copy, holds the --instance of the controller that made it.
	InstanceAnnotation = Domain + "/instance"
	// CopiedAnnotation, on a copy, lists the keys of the copied labels and annotations. It is absent if there are
	// none.
	CopiedAnnotation = Domain + "/copied"

	// EventPayload, EventSynced, EventHeld, EventBlocked and EventExpiring are annotations of an event Mirrored, beside
	// [ChecksumAnnotation] and [InstanceAnnotation]: the digest of what was copied without metadata, and numbers of
	// namespaces.
	EventPayload  = Domain + "/payload"
	EventSynced   = Domain + "/synced"
	EventHeld     = Domain + "/held"
	EventBlocked  = Domain + "/blocked"
	EventExpiring = Domain + "/expiring"

	// AdoptAnnotation with the value [AdoptValue] on a foreign ConfigMap hands it over to the controller.
	AdoptAnnotation = Domain + "/adopt"
	AdoptValue      = "true"

	// PrefixAnnotation, on a source, narrows its targets to namespaces with one of these comma-separated prefixes.
	PrefixAnnotation = Domain + "/namespace-prefix"
	// SelectorAnnotation, on a source, narrows its targets to namespaces that this label selector matches.
	SelectorAnnotation = Domain + "/namespace-selector"
	// RolloutAnnotation, on a source, holds every target whose namespace this label selector does not match.
	RolloutAnnotation = Domain + "/rollout"
	// PausedAnnotation with the value [PausedValue], on a source, holds every target.
	PausedAnnotation = Domain + "/paused"
	PausedValue      = "true"
)

// ReservedNames are names of ConfigMaps that other controllers write into every namespace: kube-controller-manager,
// OpenShift's service CA operator and Istio. The controller never writes or deletes an object of such a name. The
// policies in deploy repeat the list.
var ReservedNames = []string{"kube-root-ca.crt", "openshift-service-ca.crt", "istio-ca-root-cert"}

// Reserved reports whether another controller writes a ConfigMap of this name into every namespace.
func Reserved(name string) bool { return slices.Contains(ReservedNames, name) }
