package mirror

import (
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// neverTravels are keys of which section 1 of the contract says that they never travel, each with the rule
// it stands for. They are written out, and not taken from the code.
var neverTravels = map[string]string{
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
}

// mayTravel are keys that are much like those, and that no rule of the contract holds back.
var mayTravel = []string{
	"app", "mirror2", "mirrored", "mirror-controller.github.io", "example.com/mirror", "xmirror-controller.github.io/source",
	"app.kubernetes.io/name", "app.kubernetes.io/managed-by-team", "app.kubernetes.io/instance-id", "example.com/managed-by",
	"kubernetes.io/description", "my.kubectl.kubernetes.io/x", "kubectl.kubernetes.io.example.com/x",
	"argoproj.io/x", "argocd.argoproj.io", "notfluxcd.io/x", "fluxcd.io.example.com/x", "fluxcd.io", "example.com/x.fluxcd.io",
	"sh/x", "my.helm.sh/x", "helm.shop/x", "config.k8s.io/other", "config.k8s.io/owning-inventory-2", "k14s.io/x",
	"coreos.com/x", "olm", "olmec", "olm-x", "example.com/olm.owner", "cattle.io/x", "gke.io/x", "x-k8s.io/y",
	"config.openshift.io/other", "service.beta.openshift.io/other", "mittwald.de/x", "cert-manager.io/x", "kyverno.io/x",
}

func TestC26WhatNeverTravels(t *testing.T) {
	for key, rule := range neverTravels {
		stem := key[:len(key)-1] + "*"
		for _, patterns := range []keyPatterns{{key}, {"*"}, {stem}, {"app", "*", key}} {
			got := travelling(map[string]string{key: "1", "app": "web"}, patterns, "mirror")
			if _, travels := got[key]; travels {
				t.Errorf("%s (%s): got it travelling with the flags %q, want it to stay", key, rule, patterns)
			}
		}
	}
	for _, key := range mayTravel {
		for _, patterns := range []keyPatterns{{key}, {"*"}, {key[:len(key)-1] + "*"}} {
			if got := travelling(map[string]string{key: "1"}, patterns, "mirror"); got[key] != "1" {
				t.Errorf("%s: got it staying with the flags %q, want it to travel", key, patterns)
			}
		}
	}
}

// TestC26NeverOnACopy looks at the whole way: a source with all marks, flags that list everything.
func TestC26NeverOnACopy(t *testing.T) {
	everything := func(o *Options) {
		o.CopyLabels = append(slices.Collect(maps.Keys(neverTravels)), "*")
		o.CopyAnnotations = o.CopyLabels
	}
	r := testRules(everything)
	src := sourceCM("platform", "settings", label("app", "web"), annotation("note", "n"))
	for key := range neverTravels {
		if key == "mirror" || key == PrefixAnnotation || key == SelectorAnnotation || key == CopyAnnotation {
			continue // they would make it another source, or none
		}
		src.Labels[key], src.Annotations[key] = "theirs", "theirs"
	}
	got := r.desired(r.readSource(src), "team-a", nil)
	if want := map[string]string{"mirror": "copy", "app.kubernetes.io/managed-by": "mirror-controller", "app": "web"}; !reflect.DeepEqual(got.Labels, want) {
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

func TestStaysFollowsTheMirrorLabel(t *testing.T) {
	if !stays("example.com/mirror", "example.com/mirror") {
		t.Error("got the mirror label travelling, want it to stay")
	}
	if stays("mirror", "example.com/mirror") {
		t.Error("got the default label staying where another one is the mirror label, want it to travel")
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

func TestTravelling(t *testing.T) {
	metadata := map[string]string{"app": "web", "empty": "", "mirror": "true", "other": "1"}
	for name, tc := range map[string]struct {
		metadata map[string]string
		patterns keyPatterns
		want     map[string]string // nil: nil, and not empty
	}{
		"nothing listed":          {metadata, nil, nil},
		"nothing there":           {nil, keyPatterns{"*"}, nil},
		"nothing that is listed":  {metadata, keyPatterns{"team"}, nil},
		"nothing that may travel": {map[string]string{"mirror": "true"}, keyPatterns{"*"}, nil},
		"one":                     {metadata, keyPatterns{"app"}, map[string]string{"app": "web"}},
		"an empty value":          {metadata, keyPatterns{"empty"}, map[string]string{"empty": ""}},
		"all":                     {metadata, keyPatterns{"*"}, map[string]string{"app": "web", "empty": "", "other": "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			before := maps.Clone(tc.metadata)
			got := travelling(tc.metadata, tc.patterns, "mirror")
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
		labels, annotations map[string]string
		want                string
	}{
		"nothing":         {nil, nil, ""},
		"empty maps":      {map[string]string{}, map[string]string{}, ""},
		"a label":         {map[string]string{"app": "web"}, nil, "label:app"},
		"an annotation":   {nil, map[string]string{"app": "web"}, "annotation:app"},
		"one key as both": {map[string]string{"app": "1"}, map[string]string{"app": "2"}, "annotation:app,label:app"},
		"sorted": {map[string]string{"b": "", "a": "", "example.com/c": ""}, map[string]string{"z": "", "y": ""},
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

// TestCopiedRoundTrip writes and reads the copied annotation for many sets of keys.
func TestCopiedRoundTrip(t *testing.T) {
	keys := []string{"a", "label", "annotation", "label.a", "annotation.label", "example.com/a", "example.com/label", "A_b.c-d", longName[:63]}
	random := rand.New(rand.NewPCG(1, 2))
	draw := func() map[string]string {
		m := map[string]string{}
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
	everything := slices.Collect(maps.Keys(neverTravels))
	for name, tc := range map[string]struct {
		list        string
		labels      []string
		annotations []string
	}{
		"nothing":                     {"", nil, nil},
		"only separators":             {",,,", nil, nil},
		"no kind":                     {"app", nil, nil},
		"an unknown kind":             {"finalizer:app", nil, nil},
		"a kind in another case":      {"Label:app,LABEL:app", nil, nil},
		"a blank before the kind":     {" label:app", nil, nil},
		"another separator":           {"label:app;label:b", []string{"app;label:b"}, nil},
		"a good one between bad ones": {"x,label:app,,annotation:b,y", []string{"app"}, []string{"b"}},
		"a kind within a key":         {"label:annotation:app", []string{"annotation:app"}, nil},
		"labels that never travel":    {"label:" + strings.Join(everything, ",label:"), nil, nil},
		"annotations that never do":   {"annotation:" + strings.Join(everything, ",annotation:"), nil, nil},
		"listed twice":                {"label:app,label:app", []string{"app", "app"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			labels, annotations := copiedKeys(tc.list, "mirror")
			if !slices.Equal(labels, tc.labels) || !slices.Equal(annotations, tc.annotations) {
				t.Errorf("got %q and %q, want %q and %q", labels, annotations, tc.labels, tc.annotations)
			}
		})
	}
}

// TestHostileCopiedAnnotationOnACopy edits the copied annotation of a copy: whatever it lists, our marks stay
// as they must be, and so does what it does not list.
func TestHostileCopiedAnnotationOnACopy(t *testing.T) {
	r := testRules(func(o *Options) { o.CopyLabels = []string{"app"} })
	src := sourceCM("platform", "settings", label("app", "web"))
	fresh := r.desired(r.readSource(src), "team-a", nil)
	everything := "label:" + strings.Join(slices.Collect(maps.Keys(neverTravels)), ",label:") + ",annotation:" +
		strings.Join(slices.Collect(maps.Keys(neverTravels)), ",annotation:")
	for _, list := range []string{"", ",", "x", everything, "label:", "annotation:", "annotation:" + digestMark, strings.Repeat("label:x,", 1000)} {
		have := copyCM(r, src, "team-a", annotation(CopiedAnnotation, list), label("theirs", "1"), annotation("theirs", "1"))
		r.strip(have)
		got := r.desired(r.readSource(src), "team-a", have)
		for k, v := range fresh.Labels {
			if got.Labels[k] != v {
				t.Errorf("%.40q: got label %s=%q, want %q", list, k, got.Labels[k], v)
			}
		}
		for k, v := range fresh.Annotations {
			if got.Annotations[k] != v {
				t.Errorf("%.40q: got annotation %s=%q, want %q", list, k, got.Annotations[k], v)
			}
		}
		if got.Labels["theirs"] != "1" || got.Annotations["theirs"] != "1" {
			t.Errorf("%.40q: got labels %v and annotations %v, want those of other people to stay", list, got.Labels, got.Annotations)
		}
	}
}
