package plan

import "slices"

// Keys and values of the contract. Manifests, dashboards and scripts of users
// name them, so they do not change.
const (
	// DefaultLabel is the key of the mirror label, unless --mirror-label replaces
	// it. On a ConfigMap its value makes a source or marks a copy; on a namespace
	// [OptOutValue] has it accept no copies.
	DefaultLabel = "mirror"
	// SourceValue is the value of the mirror label on a source.
	SourceValue = "true"
	// CopyValue is the value of the mirror label on a copy.
	CopyValue = "copy"
	// OptOutValue is the value of the mirror label on a namespace without copies.
	OptOutValue = "false"

	// ManagedByLabel and ManagedByValue are the recommended Kubernetes label on
	// every copy.
	ManagedByLabel = "app.kubernetes.io/managed-by"
	ManagedByValue = "mirror-controller"

	// Domain is the prefix of all annotations of this project.
	Domain = "mirror-controller.github.io"

	// SourceAnnotation, on a copy, holds namespace/name of its source.
	SourceAnnotation = Domain + "/source"
	// CopyAnnotation, on a copy, holds namespace/name of the copy itself. The YAML
	// of a copy that somebody applies in another namespace is therefore not ours.
	CopyAnnotation = Domain + "/copy"
	// ChecksumAnnotation, on a copy, holds "sha256:" and the hex digest of
	// everything that was copied.
	ChecksumAnnotation = Domain + "/checksum"
	// InstanceAnnotation, on a copy, holds the --instance of the controller that
	// made it. Each event has it, too.
	InstanceAnnotation = Domain + "/instance"
	// CopiedAnnotation, on a copy, lists the keys of the copied labels and
	// annotations. It is absent if there are none.
	CopiedAnnotation = Domain + "/copied"

	// EventVersion, on an event about a source, holds the resourceVersion of the
	// source with which the targets were compared. See also [EventAnnotation].
	EventVersion = Domain + "/version"
	// EventWaiting, on a Mirrored, holds the number of targets that another source
	// of the name selects, too. It is absent if there are none.
	EventWaiting = Domain + "/waiting"
	// EventFrom and EventUntil, on an Expiring, hold when the first and the last of
	// the copies are deleted, as RFC 3339 has times.
	EventFrom  = Domain + "/from"
	EventUntil = Domain + "/until"

	// AdoptAnnotation with the value [AdoptValue] on a foreign ConfigMap hands it
	// over to the controller.
	AdoptAnnotation = Domain + "/adopt"
	AdoptValue      = "true"

	// PrefixAnnotation, on a source, narrows its targets to namespaces with one of
	// these comma-separated prefixes.
	PrefixAnnotation = Domain + "/namespace-prefix"
	// SelectorAnnotation, on a source, narrows its targets to namespaces that this
	// label selector matches.
	SelectorAnnotation = Domain + "/namespace-selector"
	// RolloutAnnotation, on a source, holds every target whose namespace this label
	// selector does not match.
	RolloutAnnotation = Domain + "/rollout"
	// PausedAnnotation with the value [PausedValue], on a source, holds every
	// target.
	PausedAnnotation = Domain + "/paused"
	PausedValue      = "true"
)

var (
	// sourceAnnotations narrow or hold the targets of a source.
	sourceAnnotations = []string{
		PrefixAnnotation, SelectorAnnotation, RolloutAnnotation, PausedAnnotation,
	}
	// ourAnnotations are on copies, but for AdoptAnnotation.
	ourAnnotations = []string{
		SourceAnnotation, CopyAnnotation, ChecksumAnnotation, InstanceAnnotation, CopiedAnnotation,
		AdoptAnnotation,
	}
)

// Marks of the cache are annotations. No object from the API can have them: a
// key that begins with '/' is invalid.
const (
	// payloadMark is the digest of the payload.
	payloadMark = "/payload"
	// contentMark, on an object with a copied annotation, stands for that
	// annotation and the metadata that it lists. Its value is a digest of these
	// and of the payload.
	contentMark = "/content"
	// selfMark stands for a copy annotation that names the object itself.
	selfMark = "/self"
	// othersMark stands for metadata of other people.
	othersMark = "/others"
)

// Reasons of the events on a source, and of Restored, which is on a copy.
// Mirrored, Held and Restored are of type Normal, the others are Warnings.
const (
	ReasonMirrored          = "Mirrored"
	ReasonForeign           = "Foreign"
	ReasonSuperseded        = "Superseded"
	ReasonReservedName      = "ReservedName"
	ReasonInvalidAnnotation = "InvalidAnnotation"
	ReasonWriteFailed       = "WriteFailed"
	ReasonFight             = "Fight"
	ReasonOutOfScope        = "OutOfScope"
	ReasonNoTargets         = "NoTargets"
	ReasonExpiring          = "Expiring"
	ReasonHeld              = "Held"
	ReasonRestored          = "Restored"
)

// ReservedNames are names of ConfigMaps that other controllers write into every
// namespace: kube-controller-manager, OpenShift's service CA operator and Istio.
// The policies in deploy repeat the list.
var ReservedNames = []string{"kube-root-ca.crt", "openshift-service-ca.crt", "istio-ca-root-cert"}

// Reserved reports whether another controller writes a ConfigMap of this name
// into every namespace.
func Reserved(name string) bool { return slices.Contains(ReservedNames, name) }
