package plan

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

type (
	texts = map[string]string
	blobs = map[string][]byte
)

// longName is the longest name of a ConfigMap, with dots.
var longName = strings.Repeat("a.", 126) + "a"

// testOptions mirror into team-*, but not into team-x*.
func testOptions(edit ...func(*Options)) *Options {
	o := NewOptions()
	o.NamespacePrefixes = []string{"team-"}
	o.ExcludeNamespaces = []string{"team-x*"}
	for _, e := range edit {
		e(&o)
	}
	return &o
}

// testRules are the rules of testOptions.
func testRules(edit ...func(*Options)) *Rules { return NewRules(testOptions(edit...)) }

// fromPlatform are rules by which only ConfigMaps of the namespace platform can be sources.
func fromPlatform() *Rules {
	return testRules(func(o *Options) { o.SourceNamespaces = []string{"platform"} })
}

// viewOf returns the view of those ConfigMaps that ask to be mirrored.
func viewOf(r *Rules, configMaps ...*corev1.ConfigMap) *View {
	var sources []*Source
	for _, cm := range configMaps {
		if r.AsksToBeMirrored(cm) {
			sources = append(sources, r.ParseSource(cm))
		}
	}
	return NewView(sources)
}

// stripped returns cm as the cache holds it.
func stripped(r *Rules, cm *corev1.ConfigMap) *corev1.ConfigMap {
	if cm = cm.DeepCopy(); cm != nil {
		r.Strip(cm)
	}
	return cm
}

// keyIn returns the key of the ConfigMap settings in a namespace.
func keyIn(namespace string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: "settings"}
}

// decideAt decides about the ConfigMap settings in a namespace.
func decideAt(r *Rules, v *View, ns *corev1.Namespace, have *corev1.ConfigMap) Change {
	return r.Decide(v, Target{Key: keyIn(ns.Name), Namespace: ns, Have: have})
}

// numbered returns n keys.
func numbered(n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprintf("key-%02d", i))
	}
	return keys
}

func cms(list ...*corev1.ConfigMap) []*corev1.ConfigMap { return list }

func namespaces(sources []*Source) (list []string) {
	for _, s := range sources {
		list = append(list, s.Key.Namespace)
	}
	return list
}
