package installation

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mirror-controller/mirror-controller/mirror"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Difference is a flag of a Deployment whose annotation on the ClusterRoleBinding says something else. The process follows the
// flag, and the policies follow the annotation.
type Difference struct {
	Flag, Have, Known string
	Repair            string // the command that has the annotation follow the flag
}

func (d Difference) String() string {
	return fmt.Sprintf("Flag and annotation differ: --%s is %q, and the annotation %q: the API server may refuse writes, or allow others. "+
		"To repair it: %s", d.Flag, d.Have, d.Known, d.Repair)
}

// Differences returns the flags that differ from their annotations, also those whose annotation is malformed. It returns
// nil if the user sees one of the two objects only.
func (in *Installation) Differences() ([]Difference, error) {
	if in == nil || in.Deployment == nil || in.Binding == nil {
		return nil, nil
	}
	p, err := in.Process()
	if err != nil {
		return nil, fmt.Errorf("arguments of Deployment %s: %w", in.Key, err)
	}
	known, malformed := annotations(in.Binding)
	var out []Difference
	differ := func(flag, have, known string) {
		if have != known {
			out = append(out, Difference{flag, have, known, in.repair(flag, have)})
		}
	}
	annotated := values(known)
	for i, v := range values(p.Options) {
		if malformed[v.flag] {
			annotated[i].value = in.annotation(v.flag, "")
		}
		differ(v.flag, v.value, annotated[i].value)
	}
	if p.LeaderElect {
		differ("leader-elect-resource-name", p.LeaseName, in.annotation("leader-elect-resource-name", "mirror-controller"))
		differ("leader-elect-resource-namespace", p.LeaseNamespace, in.annotation("leader-elect-resource-namespace", in.Account.Namespace))
	}
	return out, nil
}

// repair returns the command that sets an annotation, or removes it if the flag has its default.
func (in *Installation) repair(flag, value string) string {
	defaults := values(mirror.NewOptions())
	if i := slices.Index(defaults, setting{flag, value}); i >= 0 {
		return fmt.Sprintf("kubectl annotate clusterrolebinding %s %s/%s-", in.Binding.Name, plan.Domain, flag)
	}
	quoted := value
	if strings.ContainsAny(value, " \n*") {
		quoted = "$'" + strings.ReplaceAll(value, "\n", `\n`) + "'"
	}
	return fmt.Sprintf("kubectl annotate --overwrite clusterrolebinding %s %s/%s=%s", in.Binding.Name, plan.Domain, flag, quoted)
}

// setting is the value of a flag, as an annotation has it.
type setting struct{ flag, value string }

// values returns the settings that the policies know.
func values(o *mirror.Options) []setting {
	return []setting{
		{"namespace-prefix", sortedList(o.NamespacePrefixes)},
		{"all-namespaces", strconv.FormatBool(o.AllNamespaces)},
		{"namespace-selector", selectorLines(o.NamespaceSelector)},
		{"exclude-namespace", sortedList(o.ExcludeNamespaces)},
		{"mirror-label", o.Label},
		{"instance", o.Instance},
		{"copy-label", sortedList(o.CopyLabels)},
		{"copy-annotation", sortedList(o.CopyAnnotations)},
		{"prune", strconv.FormatBool(o.Prune)},
	}
}
