package plan

import (
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// contractNeverCopied are keys that are never copied, each with the rule in section 1 of the contract.
var contractNeverCopied = texts{
	"mirror":                                         "the mirror label",
	"mirror-controller.github.io/source":             "our own keys",
	"mirror-controller.github.io/copy":               "our own keys",
	"mirror-controller.github.io/checksum":           "our own keys",
	"mirror-controller.github.io/instance":           "our own keys",
	"mirror-controller.github.io/copied":             "our own keys",
	"mirror-controller.github.io/adopt":              "our own keys",
	"mirror-controller.github.io/namespace-prefix":   "our own keys",
	"mirror-controller.github.io/namespace-selector": "our own keys",
	"mirror-controller.github.io/yet-to-come":        "our own keys",

	"kubectl.kubernetes.io/last-applied-configuration": "kubectl.kubernetes.io/*",
	"kubectl.kubernetes.io/restartedAt":                "kubectl.kubernetes.io/*",
	"app.kubernetes.io/managed-by":                     "app.kubernetes.io/managed-by",
	"app.kubernetes.io/instance":                       "app.kubernetes.io/instance",
	"argocd.argoproj.io/instance":                      "argocd.argoproj.io/*",
	"argocd.argoproj.io/tracking-id":                   "argocd.argoproj.io/*",
	"argocd.argoproj.io/sync-wave":                     "argocd.argoproj.io/*",
	"kustomize.toolkit.fluxcd.io/name":                 "*.fluxcd.io/*",
	"kustomize.toolkit.fluxcd.io/prune":                "*.fluxcd.io/*",
	"helm.toolkit.fluxcd.io/namespace":                 "*.fluxcd.io/*",
	"reconcile.fluxcd.io/requestedAt":                  "*.fluxcd.io/*",
	"reconcile.fluxcd.io/watched":                      "*.fluxcd.io/*",
	"toolkit.fluxcd.io/watch":                          "*.fluxcd.io/*",
	"fluxcd.io/sync-checksum":                          "fluxcd.io/*",
	"meta.helm.sh/release-name":                        "meta.helm.sh/*",
	"meta.helm.sh/release-namespace":                   "meta.helm.sh/*",
	"helm.sh/chart":                                    "helm.sh/*",
	"helm.sh/resource-policy":                          "helm.sh/*",
	"helm.sh/hook":                                     "helm.sh/*",
	"applyset.kubernetes.io/part-of":                   "applyset.kubernetes.io/*",
	"config.k8s.io/owning-inventory":                   "config.k8s.io/owning-inventory",
	"kapp.k14s.io/app":                                 "kapp.k14s.io/*",
	"kapp.k14s.io/association":                         "kapp.k14s.io/*",
	"operators.coreos.com/prometheus.monitoring":       "operators.coreos.com/*",
	"olm.owner":                                   "olm.*",
	"olm.managed":                                 "olm.*",
	"olm.operatorframework.io/owner-name":         "olm.*",
	"objectset.rio.cattle.io/hash":                "objectset.rio.cattle.io/*",
	"objectset.rio.cattle.io/applied":             "objectset.rio.cattle.io/*",
	"fleet.cattle.io/bundle-id":                   "fleet.cattle.io/*",
	"configmanagement.gke.io/managed":             "configmanagement.gke.io/*",
	"configsync.gke.io/resource-id":               "configsync.gke.io/*",
	"hnc.x-k8s.io/inherited-from":                 "hnc.x-k8s.io/*",
	"config.openshift.io/inject-trusted-cabundle": "config.openshift.io/inject-trusted-cabundle",
	"service.beta.openshift.io/inject-cabundle":   "service.beta.openshift.io/inject-cabundle",

	"replicator.v1.mittwald.de/replicate-from":           "other replicators: kubernetes-replicator",
	"replicator.v1.mittwald.de/replicate-to":             "other replicators: kubernetes-replicator",
	"reflector.v1.k8s.emberstack.com/reflection-allowed": "other replicators: kubernetes-reflector",
	"reflector.v1.k8s.emberstack.com/reflects":           "other replicators: kubernetes-reflector",
	"kubed.appscode.com/sync":                            "other replicators: config-syncer",
	"kubed.appscode.com/origin.name":                     "other replicators: config-syncer",
	"replicator.nadundesilva.github.io/object-type":      "other replicators: k8s-replicator",
	"clustersecret.io/created-by":                        "other replicators: ClusterSecret",
	"generate.kyverno.io/clone-source":                   "other replicators: Kyverno",
	"trust.cert-manager.io/bundle":                       "other replicators: trust-manager",
	"clustersecret.io":                                   "other replicators: ClusterSecret",
	"v1.kubernetes-replicator.olli.com/replicate-from":   "other replicators: a fork of kubernetes-replicator",
	"team.tree.hnc.x-k8s.io/depth":                       "other replicators: hierarchical namespaces",
}

// contractMayBeCopied are similar keys to which no rule of the contract applies.
var contractMayBeCopied = []string{
	"reconcile.fluxcd.io/watch",
	"app", "mirror2", "mirrored", "mirror-controller.github.io", "example.com/mirror", "xmirror-controller.github.io/source",
	"app.kubernetes.io/name", "app.kubernetes.io/managed-by-team", "app.kubernetes.io/instance-id", "example.com/managed-by",
	"kubernetes.io/description", "my.kubectl.kubernetes.io/x", "kubectl.kubernetes.io.example.com/x",
	"argoproj.io/x", "argocd.argoproj.io", "notfluxcd.io/x", "fluxcd.io.example.com/x", "fluxcd.io", "example.com/x.fluxcd.io",
	"sh/x", "my.helm.sh/x", "helm.shop/x", "config.k8s.io/other", "config.k8s.io/owning-inventory-2", "k14s.io/x",
	"coreos.com/x", "olm", "olmec", "olm-x", "example.com/olm.owner", "cattle.io/x", "gke.io/x", "x-k8s.io/y",
	"config.openshift.io/other", "service.beta.openshift.io/other", "mittwald.de/x", "cert-manager.io/x", "kyverno.io/x",
}

func TestC26KeysNeverCopied(t *testing.T) {
	for key, rule := range contractNeverCopied {
		stem := key[:len(key)-1] + "*"
		for _, patterns := range []keyPatterns{{key}, {"*"}, {stem}, {"app", "*", key}} {
			got := selectCopied(texts{key: "1", "app": "web"}, patterns, "mirror")
			if _, copied := got[key]; copied {
				t.Errorf("%s (%s): got it copied with the flags %q, want it left out", key, rule, patterns)
			}
		}
	}
	for _, key := range contractMayBeCopied {
		for _, patterns := range []keyPatterns{{key}, {"*"}, {key[:len(key)-1] + "*"}} {
			if got := selectCopied(texts{key: "1"}, patterns, "mirror"); got[key] != "1" {
				t.Errorf("%s: got it left out with the flags %q, want it copied", key, patterns)
			}
		}
	}
}

// TestC26NeverOnACopy has a source with all these keys, and flags that list everything.
func TestC26NeverOnACopy(t *testing.T) {
	everything := func(o *Options) {
		o.CopyLabels = append(slices.Collect(maps.Keys(contractNeverCopied)), "*")
		o.CopyAnnotations = o.CopyLabels
	}
	r := testRules(everything)
	src := plantest.Source("platform", "settings", plantest.Label("app", "web"), plantest.Annotation("note", "n"))
	for key := range contractNeverCopied {
		if key == "mirror" || key == PrefixAnnotation || key == SelectorAnnotation || key == CopyAnnotation {
			continue // they would make it another source, or no source
		}
		src.Labels[key], src.Annotations[key] = "theirs", "theirs"
	}
	got := r.Desired(r.ParseSource(src), "team-a", nil)
	if want := (texts{"mirror": "copy", "app.kubernetes.io/managed-by": "mirror-controller", "app": "web"}); !reflect.DeepEqual(got.Labels, want) {
		t.Errorf("got labels %v, want %v", got.Labels, want)
	}
	want := []string{"mirror-controller.github.io/checksum", "mirror-controller.github.io/copied", "mirror-controller.github.io/copy",
		"mirror-controller.github.io/instance", "mirror-controller.github.io/source", "note"}
	if keys := slices.Sorted(maps.Keys(got.Annotations)); !slices.Equal(keys, want) {
		t.Errorf("got annotations %v, want %v", keys, want)
	}
	for key, value := range got.Annotations {
		if value == "theirs" {
			t.Errorf("got %s from the source, want our own value", key)
		}
	}
}

func TestNeverCopiedFollowsTheMirrorLabel(t *testing.T) {
	if !neverCopied("example.com/mirror", "example.com/mirror") {
		t.Error("got the mirror label copied, want it left out")
	}
	if neverCopied("mirror", "example.com/mirror") {
		t.Error("got the default label left out where another one is the mirror label, want it copied")
	}
}

func TestKeyPatterns(t *testing.T) {
	for _, tc := range []struct {
		patterns keyPatterns
		key      string
		want     bool
	}{
		{nil, "a", false},
		{keyPatterns{}, "", false},
		{keyPatterns{"a"}, "a", true},
		{keyPatterns{"a"}, "ab", false},
		{keyPatterns{"a"}, "b", false},
		{keyPatterns{"ab"}, "a", false},
		{keyPatterns{"a*"}, "a", true},
		{keyPatterns{"a*"}, "ab", true},
		{keyPatterns{"a*"}, "ba", false},
		{keyPatterns{"a*"}, "b", false},
		{keyPatterns{"*"}, "a", true},
		{keyPatterns{"*"}, "", true},
		{keyPatterns{"x", "a*", "y"}, "ab", true},
		{keyPatterns{"x", "y"}, "y", true},
		{keyPatterns{"example.com/*"}, "example.com/team", true},
		{keyPatterns{"example.com/*"}, "example.comx/team", false},
		{keyPatterns{"example.com/te*"}, "example.com/team", true},
		{keyPatterns{"a.c"}, "abc", false},
		{keyPatterns{"A"}, "a", false},
	} {
		if got := tc.patterns.match(tc.key); got != tc.want {
			t.Errorf("%q, key %q: got %v, want %v", tc.patterns, tc.key, got, tc.want)
		}
	}
}

func TestSelectCopied(t *testing.T) {
	metadata := texts{"app": "web", "empty": "", "mirror": "true", "other": "1"}
	for name, tc := range map[string]struct {
		metadata texts
		patterns keyPatterns
		want     texts // nil: nil, and not empty
	}{
		"nothing listed":             {metadata, nil, nil},
		"nothing there":              {nil, keyPatterns{"*"}, nil},
		"nothing that is listed":     {metadata, keyPatterns{"team"}, nil},
		"nothing that may be copied": {texts{"mirror": "true"}, keyPatterns{"*"}, nil},
		"one":                        {metadata, keyPatterns{"app"}, texts{"app": "web"}},
		"an empty value":             {metadata, keyPatterns{"empty"}, texts{"empty": ""}},
		"all":                        {metadata, keyPatterns{"*"}, texts{"app": "web", "empty": "", "other": "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			before := maps.Clone(tc.metadata)
			got := selectCopied(tc.metadata, tc.patterns, "mirror")
			if !reflect.DeepEqual(got, tc.want) {
				t.Errorf("got %#v, want %#v", got, tc.want)
			}
			if got != nil {
				got["changed"] = "1"
			}
			if !maps.Equal(tc.metadata, before) {
				t.Errorf("got the metadata of the source changed to %v, want %v", tc.metadata, before)
			}
		})
	}
}

func TestCopiedList(t *testing.T) {
	for name, tc := range map[string]struct {
		labels, annotations texts
		want                string
	}{
		"nothing":         {nil, nil, ""},
		"empty maps":      {texts{}, texts{}, ""},
		"a label":         {texts{"app": "web"}, nil, "label:app"},
		"an annotation":   {nil, texts{"app": "web"}, "annotation:app"},
		"one key as both": {texts{"app": "1"}, texts{"app": "2"}, "annotation:app,label:app"},
		"sorted": {texts{"b": "", "a": "", "example.com/c": ""}, texts{"z": "", "y": ""},
			"annotation:y,annotation:z,label:a,label:b,label:example.com/c"},
	} {
		t.Run(name, func(t *testing.T) {
			for range 5 { // maps have another order each time
				if got := copiedList(tc.labels, tc.annotations); got != tc.want {
					t.Errorf("got %q, want %q", got, tc.want)
				}
			}
		})
	}
}

// TestCopiedRoundTrip formats and parses the copied annotation for many sets of keys.
func TestCopiedRoundTrip(t *testing.T) {
	keys := []string{"a", "label", "annotation", "label.a", "annotation.label", "example.com/a", "example.com/label", "A_b.c-d", longName[:63]}
	random := rand.New(rand.NewPCG(1, 2))
	draw := func() texts {
		m := texts{}
		for _, k := range keys {
			if random.IntN(2) == 0 {
				m[k] = "x"
			}
		}
		return m
	}
	for range 200 {
		wantLabels, wantAnnotations := draw(), draw()
		list := copiedList(wantLabels, wantAnnotations)
		labels, annotations := copiedKeys(list, "mirror")
		slices.Sort(labels)
		slices.Sort(annotations)
		if want := slices.Sorted(maps.Keys(wantLabels)); !slices.Equal(labels, want) {
			t.Errorf("%q: got labels %q, want %q", list, labels, want)
		}
		if want := slices.Sorted(maps.Keys(wantAnnotations)); !slices.Equal(annotations, want) {
			t.Errorf("%q: got annotations %q, want %q", list, annotations, want)
		}
	}
}

func TestCopiedKeysOfAHostileList(t *testing.T) {
	everything := slices.Collect(maps.Keys(contractNeverCopied))
	for name, tc := range map[string]struct {
		list        string
		labels      []string
		annotations []string
	}{
		"nothing":                      {"", nil, nil},
		"only separators":              {",,,", nil, nil},
		"no kind":                      {"app", nil, nil},
		"an unknown kind":              {"finalizer:app", nil, nil},
		"a kind in another case":       {"Label:app,LABEL:app", nil, nil},
		"a blank before the kind":      {" label:app", nil, nil},
		"another separator":            {"label:app;label:b", []string{"app;label:b"}, nil},
		"a good one between bad ones":  {"x,label:app,,annotation:b,y", []string{"app"}, []string{"b"}},
		"a kind within a key":          {"label:annotation:app", []string{"annotation:app"}, nil},
		"labels that are never copied": {"label:" + strings.Join(everything, ",label:"), nil, nil},
		"annotations that never are":   {"annotation:" + strings.Join(everything, ",annotation:"), nil, nil},
		"listed twice":                 {"label:app,label:app", []string{"app", "app"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			labels, annotations := copiedKeys(tc.list, "mirror")
			if !slices.Equal(labels, tc.labels) || !slices.Equal(annotations, tc.annotations) {
				t.Errorf("got %q and %q, want %q and %q", labels, annotations, tc.labels, tc.annotations)
			}
		})
	}
}
