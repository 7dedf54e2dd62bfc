package mirror

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// longName is the longest name that a ConfigMap can have, with dots.
var longName = strings.Repeat("a.", 126) + "a"

// marked returns a ConfigMap with the three annotations that make it a copy of platform/name, edited.
func marked(namespace, name string, options ...cmOption) *corev1.ConfigMap {
	return configMap(namespace, name, append([]cmOption{
		label("mirror", "copy"),
		annotation("mirror-controller.github.io/source", "platform/"+name),
		annotation("mirror-controller.github.io/copy", namespace+"/"+name),
		annotation("mirror-controller.github.io/instance", "default"),
	}, options...)...)
}

func TestSourceOf(t *testing.T) {
	const (
		sourceKey   = "mirror-controller.github.io/source"
		copyKey     = "mirror-controller.github.io/copy"
		instanceKey = "mirror-controller.github.io/instance"
	)
	if len(longName) != 253 {
		t.Fatalf("the long name has %d characters", len(longName))
	}
	for name, tc := range map[string]struct {
		cm   *corev1.ConfigMap
		want string // empty: not ours
	}{
		"a copy":                              {marked("team-a", "settings"), "platform/settings"},
		"C09 name of 253 characters, dots":    {marked("team-a", longName), "platform/" + longName},
		"C09 name of one character":           {marked("team-a", "s"), "platform/s"},
		"C08 without its label":               {marked("team-a", "settings", without("mirror")), "platform/settings"},
		"C02 labelled as a source":            {marked("team-a", "settings", label("mirror", "true")), "platform/settings"},
		"labelled as something else":          {marked("team-a", "settings", label("mirror", "no")), "platform/settings"},
		"C16 being deleted":                   {marked("team-a", "settings", deleting), "platform/settings"},
		"without checksum and copied":         {marked("team-a", "settings", without("mirror-controller.github.io/checksum")), "platform/settings"},
		"C07 the label alone":                 {configMap("team-a", "settings", label("mirror", "copy")), ""},
		"no annotations at all":               {&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "settings"}}, ""},
		"C08 released: no source":             {marked("team-a", "settings", without(sourceKey)), ""},
		"C08 released: no copy":               {marked("team-a", "settings", without(copyKey)), ""},
		"C08 released: no instance":           {marked("team-a", "settings", without(instanceKey)), ""},
		"C06 applied in another namespace":    {marked("team-b", "settings", annotation(copyKey, "team-a/settings")), ""},
		"C06 applied under another name":      {marked("team-a", "other", annotation(copyKey, "team-a/settings"), annotation(sourceKey, "platform/settings")), ""},
		"C06 namespace of equal length":       {marked("team-b", "settings", annotation(copyKey, "team-c/settings")), ""},
		"C06 name of equal length":            {marked("team-a", "settings", annotation(copyKey, "team-a/settingz")), ""},
		"C06 names the beginning of itself":   {marked("team-a", "settings", annotation(copyKey, "team-a/setting")), ""},
		"C06 names more than itself":          {marked("team-a", "settings", annotation(copyKey, "team-a/settings/")), ""},
		"C06 another separator":               {marked("team-a", "settings", annotation(copyKey, "team-a.settings")), ""},
		"C06 without the namespace":           {marked("team-a", "settings", annotation(copyKey, "settings")), ""},
		"C06 copy empty":                      {marked("team-a", "settings", annotation(copyKey, "")), ""},
		"C07 source of another name":          {marked("team-a", "settings", annotation(sourceKey, "platform/other")), ""},
		"C07 source of a longer name":         {marked("team-a", "settings", annotation(sourceKey, "platform/settings.x")), ""},
		"C07 its own source":                  {marked("team-a", "settings", annotation(sourceKey, "team-a/settings")), ""},
		"C07 source without a namespace":      {marked("team-a", "settings", annotation(sourceKey, "settings")), ""},
		"C07 source with an empty namespace":  {marked("team-a", "settings", annotation(sourceKey, "/settings")), ""},
		"C07 source empty":                    {marked("team-a", "settings", annotation(sourceKey, "")), ""},
		"C07 source with too many parts":      {marked("team-a", "settings", annotation(sourceKey, "platform/x/settings")), ""},
		"C10 another instance":                {marked("team-a", "settings", annotation(instanceKey, "other")), ""},
		"C10 the instance in another case":    {marked("team-a", "settings", annotation(instanceKey, "Default")), ""},
		"C10 a longer instance":               {marked("team-a", "settings", annotation(instanceKey, "default2")), ""},
		"C10 instance empty":                  {marked("team-a", "settings", annotation(instanceKey, "")), ""},
		"source namespace that begins as its": {marked("team-a", "settings", annotation(sourceKey, "team-a2/settings")), "team-a2/settings"},
	} {
		t.Run(name, func(t *testing.T) {
			key, ours := testRules().sourceOf(tc.cm)
			want := cache.ObjectName{}
			if tc.want != "" {
				want.Namespace, want.Name, _ = strings.Cut(tc.want, "/")
			}
			if ours != (tc.want != "") || key != want {
				t.Errorf("got %q, %v, want %q, %v", key, ours, want, tc.want != "")
			}
		})
	}
}

func TestSourceOfIsBoundToTheInstance(t *testing.T) {
	second := testRules(func(o *Options) { o.Instance = "second" })
	cm := marked("team-a", "settings", annotation("mirror-controller.github.io/instance", "second"))
	if _, ours := second.sourceOf(cm); !ours {
		t.Error("C10: a copy of the second instance is not its own")
	}
	if _, ours := testRules().sourceOf(cm); ours {
		t.Error("C10: a copy of the second instance is taken for ours")
	}
}

func TestIsSource(t *testing.T) {
	anywhere := testRules()
	narrow := testRules(func(o *Options) { o.SourceNamespaces = []string{"platform", "base"} })
	other := testRules(func(o *Options) { o.Label = "example.com/mirror" })
	for name, tc := range map[string]struct {
		rules *rules
		cm    *corev1.ConfigMap
		asks  bool
		is    bool
	}{
		"labelled":                         {anywhere, configMap("platform", "s", label("mirror", "true")), true, true},
		"C09 name of 253 characters":       {anywhere, configMap("platform", longName, label("mirror", "true")), true, true},
		"not labelled":                     {anywhere, configMap("platform", "s"), false, false},
		"no labels at all":                 {anywhere, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "platform", Name: "s"}}, false, false},
		"label empty":                      {anywhere, configMap("platform", "s", label("mirror", "")), false, false},
		"label in another case":            {anywhere, configMap("platform", "s", label("mirror", "True")), false, false},
		"labelled copy":                    {anywhere, configMap("platform", "s", label("mirror", "copy")), false, false},
		"an annotation instead":            {anywhere, configMap("platform", "s", annotation("mirror", "true")), false, false},
		"C16 being deleted":                {anywhere, configMap("platform", "s", label("mirror", "true"), deleting), false, false},
		"C02 a copy labelled true":         {anywhere, marked("team-a", "s", label("mirror", "true")), false, false},
		"C02 of another instance":          {anywhere, marked("team-a", "s", label("mirror", "true"), annotation(InstanceAnnotation, "x")), false, false},
		"C02 without instance and source":  {anywhere, marked("team-a", "s", label("mirror", "true"), without(InstanceAnnotation), without(SourceAnnotation)), false, false},
		"C06 names another object":         {anywhere, marked("team-a", "s", label("mirror", "true"), annotation(CopyAnnotation, "team-b/s")), true, true},
		"in a target namespace":            {anywhere, configMap("team-a", "s", label("mirror", "true")), true, true},
		"reserved name":                    {anywhere, configMap("platform", "kube-root-ca.crt", label("mirror", "true")), true, true},
		"in a source namespace":            {narrow, configMap("base", "s", label("mirror", "true")), true, true},
		"outside the source namespaces":    {narrow, configMap("team-a", "s", label("mirror", "true")), true, false},
		"source namespaces are no prefix":  {narrow, configMap("platform-2", "s", label("mirror", "true")), true, false},
		"copy within a source namespace":   {narrow, marked("base", "s", label("mirror", "true")), false, false},
		"other label":                      {other, configMap("platform", "s", label("example.com/mirror", "true")), true, true},
		"default label, another is wanted": {other, configMap("platform", "s", label("mirror", "true")), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			if asks, is := tc.rules.asksToBeMirrored(tc.cm), tc.rules.isSource(tc.cm); asks != tc.asks || is != tc.is {
				t.Errorf("got asksToBeMirrored %v, isSource %v; want %v, %v", asks, is, tc.asks, tc.is)
			}
		})
	}
}

func TestAllowsTarget(t *testing.T) {
	prefixes := func(p ...string) func(*Options) { return func(o *Options) { o.NamespacePrefixes = p } }
	exclude := func(e ...string) func(*Options) { return func(o *Options) { o.ExcludeNamespaces = e } }
	all := func(o *Options) { o.NamespacePrefixes, o.AllNamespaces = nil, true }
	long := strings.Repeat("a", 63)
	for name, tc := range map[string]struct {
		edit []func(*Options)
		yes  []string
		no   []string
	}{
		"a prefix": {nil,
			[]string{"team-a", "team-", "team-a-b"},
			[]string{"team", "teamster", "my-team-a", "Team-a", "default", ""}},
		"C09 team against teamster": {[]func(*Options){prefixes("team")},
			[]string{"team", "teamster", "team-a"}, []string{"tea", "steam", "my-team"}},
		"C09 prefix equal to a whole name": {[]func(*Options){prefixes("team-a")},
			[]string{"team-a", "team-ab", "team-a-1"}, []string{"team", "team-b", "team-"}},
		"C09 prefix of 63 characters": {[]func(*Options){prefixes(long)},
			[]string{long}, []string{long[1:], "a"}},
		"the prefix is literal": {[]func(*Options){prefixes("te.m")},
			[]string{"te.m-x"}, []string{"team"}},
		"several prefixes": {[]func(*Options){prefixes("team-", "dev-")},
			[]string{"team-a", "dev-a"}, []string{"qa-a", "team", "dev"}},
		"no prefix allows nothing": {[]func(*Options){prefixes()}, nil, []string{"", "a"}},
		"an excluded name": {[]func(*Options){exclude("team-a")},
			[]string{"team-ab", "team-b", "team-"}, []string{"team-a"}},
		"an excluded pattern": {[]func(*Options){exclude("team-a*")},
			[]string{"team-b", "team-"}, []string{"team-a", "team-ab", "team-a-b"}},
		"several exclusions": {[]func(*Options){exclude("team-a", "team-b*")},
			[]string{"team-ab", "team-c"}, []string{"team-a", "team-b", "team-bc"}},
		"nothing excluded":        {[]func(*Options){exclude()}, []string{"team-x"}, []string{"other"}},
		"exclusion beats prefix":  {[]func(*Options){prefixes("team-a"), exclude("team-*")}, nil, []string{"team-a", "team-ab"}},
		"all namespaces":          {[]func(*Options){all, exclude()}, []string{"a", "default", "kube-system", long}, nil},
		"all but the excluded":    {[]func(*Options){all, exclude("kube-*", "default")}, []string{"a", "kube", "default-1"}, []string{"kube-system", "default"}},
		"all wins over a prefix":  {[]func(*Options){func(o *Options) { o.AllNamespaces = true }, exclude()}, []string{"other", "team-a"}, nil},
		"source namespace is one": {[]func(*Options){func(o *Options) { o.SourceNamespaces = []string{"team-a"} }}, []string{"team-a"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := testRules(tc.edit...)
			for _, ns := range tc.yes {
				if !r.allowsTarget(ns) {
					t.Errorf("got %q not allowed, want it allowed", ns)
				}
			}
			for _, ns := range tc.no {
				if r.allowsTarget(ns) {
					t.Errorf("got %q allowed, want it not allowed", ns)
				}
			}
		})
	}
}

func TestAllNamespacesKeepsKubeNamespacesOutByDefault(t *testing.T) {
	o := NewOptions()
	o.AllNamespaces = true
	r := newRules(o)
	for ns, want := range map[string]bool{"kube-system": false, "kube-public": false, "kube": true, "default": true, "my-kube-x": true} {
		if got := r.allowsTarget(ns); got != want {
			t.Errorf("%s: got %v, want %v", ns, got, want)
		}
	}
}

func TestAccepts(t *testing.T) {
	dying := namespace("team-a")
	dying.Status.Phase = corev1.NamespaceTerminating
	deleted := namespace("team-a")
	deleted.DeletionTimestamp = &metav1.Time{}
	active := namespace("team-a")
	active.Status.Phase = corev1.NamespaceActive
	bare := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a"}}
	other := testRules(func(o *Options) { o.Label = "example.com/mirror" })
	for name, tc := range map[string]struct {
		rules *rules
		ns    *corev1.Namespace
		want  bool
	}{
		"active":                         {testRules(), active, true},
		"without labels":                 {testRules(), bare, true},
		"C28 phase terminating":          {testRules(), dying, false},
		"C28 deletion timestamp":         {testRules(), deleted, false},
		"C31 opted out":                  {testRules(), namespace("team-a", "mirror", "false"), false},
		"C31 label of another value":     {testRules(), namespace("team-a", "mirror", "False"), true},
		"C31 label true":                 {testRules(), namespace("team-a", "mirror", "true"), true},
		"C31 opted out by another label": {other, namespace("team-a", "example.com/mirror", "false"), false},
		"C31 another label is wanted":    {other, namespace("team-a", "mirror", "false"), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.rules.accepts(tc.ns); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestAdoptable(t *testing.T) {
	adopt := annotation("mirror-controller.github.io/adopt", "true")
	other := annotation(InstanceAnnotation, "other")
	for name, tc := range map[string]struct {
		cm   *corev1.ConfigMap
		want bool
	}{
		"C12 annotated":                     {configMap("team-a", "s", adopt), true},
		"C12 annotated and labelled":        {configMap("team-a", "s", adopt, label("mirror", "copy")), true},
		"not annotated":                     {configMap("team-a", "s"), false},
		"labelled only":                     {configMap("team-a", "s", label("mirror", "copy")), false},
		"annotated with another value":      {configMap("team-a", "s", annotation(AdoptAnnotation, "True")), false},
		"a label instead":                   {configMap("team-a", "s", label(AdoptAnnotation, "true")), false},
		"a source":                          {configMap("team-a", "s", adopt, label("mirror", "true")), false},
		"C10 copy of another instance":      {marked("team-a", "s", adopt, other), false},
		"C10 of another, without its label": {marked("team-a", "s", adopt, other, without("mirror")), false},
		"C06 applied from elsewhere":        {marked("team-a", "s", adopt, other, annotation(CopyAnnotation, "team-b/s")), true},
		"C08 released copy of ours":         {marked("team-a", "s", adopt, without(SourceAnnotation)), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := testRules().adoptable(tc.cm); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestSeen(t *testing.T) {
	other := testRules(func(o *Options) { o.Label = "example.com/mirror" })
	for value, want := range map[string]bool{"true": true, "copy": true, "false": false, "": false, "Copy": false} {
		if got := testRules().seen(configMap("team-a", "s", label("mirror", value))); got != want {
			t.Errorf("%q: got %v, want %v", value, got, want)
		}
		if other.seen(configMap("team-a", "s", label("mirror", value))) {
			t.Errorf("%q: got it seen by another label", value)
		}
	}
	if testRules().seen(&corev1.ConfigMap{}) {
		t.Error("got an object without labels seen")
	}
}

func TestSameKey(t *testing.T) {
	for _, tc := range []struct {
		key, namespace, name string
		want                 bool
	}{
		{"a/b", "a", "b", true},
		{"team-a/" + longName, "team-a", longName, true},
		{"a/bc", "a", "b", false},
		{"a/b", "a", "bc", false},
		{"ab/c", "a", "c", false},
		{"a/c", "ab", "c", false},
		{"ab/c", "a", "b/c", false},
		{"a.b", "a", "b", false},
		{"b/a", "a", "b", false},
		{"", "a", "b", false},
		{"/", "a", "b", false},
		{"/", "", "", true},
	} {
		if got := sameKey(tc.key, tc.namespace, tc.name); got != tc.want {
			t.Errorf("%q, %q, %q: got %v, want %v", tc.key, tc.namespace, tc.name, got, tc.want)
		}
	}
}
