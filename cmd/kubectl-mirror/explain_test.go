package main

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot/snapshottest"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

func TestExplain(t *testing.T) {
	s := snapshottest.EveryState()
	s.Options.NamespaceSelector = "!frozen"
	s.Options.SourceNamespaces = []string{"platform", "team-a"}
	s.Namespaces = append(s.Namespaces, plantest.Namespace("team-cold", "frozen", "true"), plantest.Namespace("kube-system"),
		plantest.Namespace("team-odd", "mirror", "False"))
	s.Add(plantest.ConfigMap("team-a", "neither"))
	unlabelled := plantest.Source("platform", "unlabelled")
	s.Copy(unlabelled, "team-a")
	s.Add(plantest.ConfigMap("platform", "unlabelled"))
	for name, key := range map[string]types.NamespacedName{
		"namespace":              {Name: "team-a"},
		"namespace-opted-out":    {Name: "team-no"},
		"namespace-terminating":  {Name: "team-over"},
		"namespace-unselected":   {Name: "team-cold"},
		"namespace-excluded":     {Name: "kube-system"},
		"namespace-odd-label":    {Name: "team-odd"},
		"namespace-missing":      {Name: "nowhere"},
		"source":                 {Namespace: "platform", Name: "mixed"},
		"source-of-tenant":       {Namespace: "team-a", Name: "mixed"},
		"source-frozen":          {Namespace: "platform", Name: "frozen"},
		"source-reserved":        {Namespace: "platform", Name: "kube-root-ca.crt"},
		"source-without-targets": {Namespace: "platform", Name: "nowhere"},
		"source-no-longer":       {Namespace: "platform", Name: "unlabelled"},
		"copy":                   {Namespace: "team-h", Name: "mixed"},
		"copy-edited":            {Namespace: "team-b", Name: "mixed"},
		"copy-unwanted":          {Namespace: "team-no", Name: "mixed"},
		"copy-out-of-scope":      {Namespace: "dev-a", Name: "mixed"},
		"copy-missing":           {Namespace: "team-g", Name: "mixed"},
		"copy-of-nothing":        {Namespace: "team-g", Name: "unknown"},
		"foreign":                {Namespace: "team-d", Name: "mixed"},
		"foreign-handed-over":    {Namespace: "team-e", Name: "mixed"},
		"foreign-finalizer":      {Namespace: "team-f", Name: "mixed"},
		"source-held":            {Namespace: "platform", Name: "staged"},
		"copy-held":              {Namespace: "team-b", Name: "staged"},
		"copy-missing-held":      {Namespace: "team-c", Name: "staged"},
		"neither":                {Namespace: "team-a", Name: "neither"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			output := outputFlag("table")
			e := explain(&s.Options, s.Snapshot(t), key, s.Get(key.Namespace, key.Name))
			if key.Namespace == "" {
				e = explainNamespace(&s.Options, s.Snapshot(t), key.Name)
			}
			if err := output.print(&out, e); err != nil {
				t.Fatal(err)
			}
			golden(t, "explain-"+name, out.Bytes())
		})
	}
}

// TestHandOverThatRecreates has foreign ConfigMaps that would be created again, and the warning before the command.
func TestHandOverThatRecreates(t *testing.T) {
	for why, change := range map[string]plantest.Option{
		"it is immutable":                    plantest.Immutable,
		"its metadata takes more than 8 KiB": plantest.Annotation("theirs", strings.Repeat("x", 9<<10)),
	} {
		s := snapshottest.New()
		s.Add(plantest.Source("platform", "settings"))
		foreign := s.Add(plantest.ConfigMap("team-a", "settings", plantest.Data("key", "theirs"), change))
		e := explain(&s.Options, s.Snapshot(t), plan.KeyOf(foreign), foreign)
		want := "REPLACES ITS DATA; " + why + ", so it is deleted and created again, without"
		if !strings.Contains(e.Verdict, want) {
			t.Errorf("got %q, want in it %q", e.Verdict, want)
		}
	}
}

// TestRulesAgreeWithPlan has every combination of what the rules are about: all of them hold exactly where package plan finds
// that the source wins the namespace.
func TestRulesAgreeWithPlan(t *testing.T) {
	options := combinations(map[string]func(*plan.Options){
		"all":      func(o *plan.Options) { o.AllNamespaces, o.NamespacePrefixes = true, nil },
		"selector": func(o *plan.Options) { o.NamespaceSelector = "env in (dev)" },
		"excluded": func(o *plan.Options) { o.ExcludeNamespaces = []string{"team-*"} },
		"sources":  func(o *plan.Options) { o.SourceNamespaces = []string{"platform"} },
	})
	namespaces := combinations(map[string]func(*corev1.Namespace){
		"dev":      func(ns *corev1.Namespace) { ns.Labels["env"] = "dev" },
		"opt-out":  func(ns *corev1.Namespace) { ns.Labels["mirror"] = "false" },
		"over":     func(ns *corev1.Namespace) { ns.Status.Phase = corev1.NamespaceTerminating },
		"platform": func(ns *corev1.Namespace) { ns.Name = "platform" },
	})
	sources := combinations(map[string]func(*corev1.ConfigMap){
		"elsewhere": func(cm *corev1.ConfigMap) { cm.Namespace = "elsewhere" },
		"narrow":    plantest.Annotation(plan.PrefixAnnotation, "team-b, dev"),
		"selective": plantest.Annotation(plan.SelectorAnnotation, "env=dev"),
		"frozen":    plantest.Annotation(plan.SelectorAnnotation, "a==b==c"),
		"copy":      func(cm *corev1.ConfigMap) { cm.Annotations[plan.CopyAnnotation] = cm.Namespace + "/" + cm.Name },
		"plain":     plantest.Without("mirror"),
		"deleting":  plantest.Deleting,
		"reserved":  func(cm *corev1.ConfigMap) { cm.Name = "kube-root-ca.crt" },
	})
	wins := 0
	for _, setOptions := range options {
		o := plan.NewOptions()
		o.NamespacePrefixes = []string{"team-"}
		setOptions(&o)
		rules := plan.NewRules(&o)
		for _, setNamespace := range namespaces {
			ns := plantest.Namespace("team-a")
			setNamespace(ns)
			for _, setSource := range sources {
				cm := plantest.Source("platform", "settings")
				setSource(cm)
				s := rules.ParseSource(cm)
				want := rules.AsksToBeMirrored(cm) && rules.Winner(plan.NewView([]*plan.Source{s}), ns) != nil
				of, free, is, to := sourceRules(&o, cm), freezeRules(s), namespaceRules(&o, ns.Name, ns), narrowingRules(s, ns)
				if got := of.holds() && free.holds() && is.holds() && to.holds(); got != want {
					t.Fatalf("%+v, %v, %v: the rules hold: %v, want %v:\n%+v\n%+v\n%+v", o, ns, cm, got, want, of, is, to)
				}
				if want {
					wins++
				}
			}
		}
	}
	if wins == 0 {
		t.Error("no source won")
	}
}

// combinations returns a function for each subset of the changes that makes them, in the order of their names.
func combinations[T any](changes map[string]func(*T)) []func(*T) {
	out := []func(*T){func(*T) {}}
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		change := changes[name]
		for _, before := range out {
			out = append(out, func(t *T) { before(t); change(t) })
		}
	}
	return out
}

// TestCopyRulesAgreeWithPlan has what keeps a ConfigMap from being a copy of ours, one at a time.
func TestCopyRulesAgreeWithPlan(t *testing.T) {
	o := plan.NewOptions()
	for name, change := range map[string]plantest.Option{
		"nothing":          func(*corev1.ConfigMap) {},
		"no label":         plantest.Without("mirror"),
		"label of source":  plantest.Label("mirror", "true"),
		"other instance":   plantest.Annotation(plan.InstanceAnnotation, "two"),
		"copied elsewhere": plantest.Annotation(plan.CopyAnnotation, "team-b/settings"),
		"other name":       plantest.Annotation(plan.SourceAnnotation, "platform/other"),
		"own source":       plantest.Annotation(plan.SourceAnnotation, "team-a/settings"),
		"no source":        plantest.Without(plan.SourceAnnotation),
		"no copy":          plantest.Without(plan.CopyAnnotation),
		"wrong namespace":  plantest.Annotation(plan.SourceAnnotation, "Platform/settings"),
	} {
		cm := plantest.Marked("team-a", "settings", change)
		_, want := plan.NewRules(&o).SourceOf(cm)
		if rules := copyRules(&o, cm); rules.holds() != want {
			t.Errorf("%s: the rules hold: %v, want %v: %+v", name, rules.holds(), want, rules)
		}
	}
}
