package mirror

// Keys and values of the contract. Other people's manifests, dashboards and scripts name them, so they
// do not change; doc.go says what each of them means.
const (
	// DefaultLabel is the label key that makes a ConfigMap a source (value [SourceValue]) and marks a copy
	// (value [CopyValue]). --mirror-label replaces the key.
	DefaultLabel = "mirror"
	// SourceValue is the value of the mirror label by which a ConfigMap asks to be mirrored.
	SourceValue = "true"
	// CopyValue is the value of the mirror label on a copy.
	CopyValue = "copy"
	// OptOutValue is the value of the mirror label by which the owner of a namespace declines all copies.
	OptOutValue = "false"

	// ManagedByLabel and ManagedByValue are the recommended Kubernetes label on every copy.
	ManagedByLabel = "app.kubernetes.io/managed-by"
	ManagedByValue = "mirror-controller"

	// Domain is the prefix of every annotation of ours.
	Domain = "mirror-controller.github.io"

	// SourceAnnotation, on a copy, holds namespace/name of its source.
	SourceAnnotation = Domain + "/source"
	// CopyAnnotation, on a copy, holds namespace/name of the copy itself, so that the YAML of a copy that is
	// applied elsewhere is not taken for ours.
	CopyAnnotation = Domain + "/copy"
	// ChecksumAnnotation, on a copy, holds "sha256:" and the hex digest of all that was copied.
	ChecksumAnnotation = Domain + "/checksum"
	// InstanceAnnotation, on a copy, holds the --instance that made it.
	InstanceAnnotation = Domain + "/instance"
	// CopiedAnnotation, on a copy, lists the keys of the labels and annotations that were copied with it; it
	// is absent if there are none. See [copiedKeys].
	CopiedAnnotation = Domain + "/copied"

	// AdoptAnnotation with the value [AdoptValue] on a ConfigMap in the way of a copy hands it over to us.
	AdoptAnnotation = Domain + "/adopt"
	AdoptValue      = "true"

	// PrefixAnnotation, on a source, narrows its targets to namespaces with one of these comma-separated
	// prefixes.
	PrefixAnnotation = Domain + "/namespace-prefix"
	// SelectorAnnotation, on a source, narrows its targets to namespaces that this label selector matches.
	SelectorAnnotation = Domain + "/namespace-selector"
)

// reservedNames are written into every namespace by other controllers: kube-controller-manager, OpenShift's
// service CA operator and Istio. A source of such a name is never mirrored, and no object of such a name is
// ever written or deleted.
var reservedNames = map[string]bool{
	"kube-root-ca.crt":         true,
	"openshift-service-ca.crt": true,
	"istio-ca-root-cert":       true,
}
