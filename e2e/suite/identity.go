package suite

import (
	"strings"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// MarksOfCopy makes of a ConfigMap what a copy of namespace/name in target carries, true to the last mark.
func (w *World) MarksOfCopy(namespace, target, name string) []Option {
	return []Option{
		WithLabel(w.Label, "copy"),
		WithLabel("app.kubernetes.io/managed-by", "mirror-controller"),
		WithAnnotation(plan.SourceAnnotation, namespace+"/"+name),
		WithAnnotation(plan.CopyAnnotation, target+"/"+name),
		WithAnnotation(plan.InstanceAnnotation, w.Instance),
		WithAnnotation(plan.ChecksumAnnotation, "sha256:"+strings.Repeat("0", 64)),
	}
}
