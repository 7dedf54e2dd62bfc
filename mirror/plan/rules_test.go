package plan

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

func TestSourceOf(t *testing.T) {
	source := func(v string) plantest.Option { return plantest.Annotation("mirror-controller.github.io/source", v) }
	copyAt := func(v string) plantest.Option { return plantest.Annotation("mirror-controller.github.io/copy", v) }
	instance := func(v string) plantest.Option { return plantest.Annotation("mirror-controller.github.io/instance", v) }
	marked := func(o ...plantest.Option) *corev1.ConfigMap { return plantest.Marked("team-a", "settings", o...) }
	long := strings.Repeat("a", 63)
	if len(longName) != 253 {
		t.Fatalf("got a long name of %d characters, want 253", len(longName))
	}
	for name, tc := range map[string]struct {
		cm   *corev1.ConfigMap
		want string // empty: not ours
	}{
		"a copy":                              {marked(), "platform/settings"},
		"C09 name of 253 characters, dots":    {plantest.Marked("team-a", longName), "platform/" + longName},
		"C09 name of one character":           {plantest.Marked("team-a", "s"), "platform/s"},
		"C08 without its label":               {marked(plantest.Without("mirror")), "platform/settings"},
		"C02 labelled as a source":            {marked(plantest.Label("mirror", "true")), "platform/settings"},
		"labelled as something else":          {marked(plantest.Label("mirror", "no")), "platform/settings"},
		"C16 being deleted":                   {marked(plantest.Deleting), "platform/settings"},
		"without checksum and copied":         {marked(plantest.Without("mirror-controller.github.io/checksum")), "platform/settings"},
		"C07 the label alone":                 {plantest.ConfigMap("team-a", "settings", plantest.Label("mirror", "copy")), ""},
		"no annotations at all":               {&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "settings"}}, ""},
		"C08 released: no source":             {marked(plantest.Without("mirror-controller.github.io/source")), ""},
		"C08 released: no copy":               {marked(plantest.Without("mirror-controller.github.io/copy")), ""},
		"C08 released: no instance":           {marked(plantest.Without("mirror-controller.github.io/instance")), ""},
		"C06 applied in another namespace":    {plantest.Marked("team-b", "settings", copyAt("team-a/settings")), ""},
		"C06 applied under another name":      {plantest.Marked("team-a", "other", copyAt("team-a/settings"), source("platform/settings")), ""},
		"C06 namespace of equal length":       {plantest.Marked("team-b", "settings", copyAt("team-c/settings")), ""},
		"C06 name of equal length":            {marked(copyAt("team-a/settingz")), ""},
		"C06 names the beginning of itself":   {marked(copyAt("team-a/setting")), ""},
		"C06 names more than itself":          {marked(copyAt("team-a/settings/")), ""},
		"C06 another separator":               {marked(copyAt("team-a.settings")), ""},
		"C06 without the namespace":           {marked(copyAt("settings")), ""},
		"C06 copy empty":                      {marked(copyAt("")), ""},
		"C07 source of another name":          {marked(source("platform/other")), ""},
		"C07 source of a longer name":         {marked(source("platform/settings.x")), ""},
		"C07 its own source":                  {marked(source("team-a/settings")), ""},
		"C07 source without a namespace":      {marked(source("settings")), ""},
		"C07 source with an empty namespace":  {marked(source("/settings")), ""},
		"C07 source empty":                    {marked(source("")), ""},
		"C07 source with too many parts":      {marked(source("platform/x/settings")), ""},
		"C10 another instance":                {marked(instance("other")), ""},
		"C10 the instance in another case":    {marked(instance("Default")), ""},
		"C10 a longer instance":               {marked(instance("default2")), ""},
		"C10 instance empty":                  {marked(instance("")), ""},
		"C07 source namespace in upper case":  {marked(source("Platform/settings")), ""},
		"C07 source namespace, dash at end":   {marked(source("platform-/settings")), ""},
		"C07 source namespace with a dot":     {marked(source("plat.form/settings")), ""},
		"C07 source namespace too long":       {marked(source(long + "a/settings")), ""},
		"C09 source namespace, longest":       {marked(source(long + "/settings")), long + "/settings"},
		"source namespace that begins as its": {marked(source("team-a2/settings")), "team-a2/settings"},
	} {
		t.Run(name, func(t *testing.T) {
			key, ours := testRules().SourceOf(tc.cm)
			want := types.NamespacedName{}
			if tc.want != "" {
				want.Namespace, want.Name, _ = strings.Cut(tc.want, "/")
			}
			if ours != (tc.want != "") || key != want {
				t.Errorf("got %q, %v, want %q, %v", key, ours, want, tc.want != "")
			}
		})
	}
}

func TestIsSource(t *testing.T) {
	anywhere := testRules()
	narrow := testRules(func(o *Options) { o.SourceNamespaces = []string{"platform", "base"} })
	other := testRules(func(o *Options) { o.Label = "example.com/mirror" })
	yes := plantest.Label("mirror", "true")
	bare := []plantest.Option{yes, plantest.Without(InstanceAnnotation), plantest.Without(SourceAnnotation)}
	for name, tc := range map[string]struct {
		rules *Rules
		cm    *corev1.ConfigMap
		asks  bool
		is    bool
	}{
		"labelled":                        {anywhere, plantest.ConfigMap("platform", "s", yes), true, true},
		"C09 name of 253 characters":      {anywhere, plantest.ConfigMap("platform", longName, yes), true, true},
		"not labelled":                    {anywhere, plantest.ConfigMap("platform", "s"), false, false},
		"no labels at all":                {anywhere, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "platform", Name: "s"}}, false, false},
		"label empty":                     {anywhere, plantest.ConfigMap("platform", "s", plantest.Label("mirror", "")), false, false},
		"label in another case":           {anywhere, plantest.ConfigMap("platform", "s", plantest.Label("mirror", "True")), false, false},
		"labelled copy":                   {anywhere, plantest.ConfigMap("platform", "s", plantest.Label("mirror", "copy")), false, false},
		"an annotation instead":           {anywhere, plantest.ConfigMap("platform", "s", plantest.Annotation("mirror", "true")), false, false},
		"C16 being deleted":               {anywhere, plantest.ConfigMap("platform", "s", yes, plantest.Deleting), false, false},
		"C02 a copy labelled true":        {anywhere, plantest.Marked("team-a", "s", yes), false, false},
		"C02 of another instance":         {anywhere, plantest.Marked("team-a", "s", yes, plantest.Annotation(InstanceAnnotation, "x")), false, false},
		"C02 without instance and source": {anywhere, plantest.Marked("team-a", "s", bare...), false, false},
		"C06 names another object":        {anywhere, plantest.Marked("team-a", "s", yes, plantest.Annotation(CopyAnnotation, "team-b/s")), true, true},
		"in a target namespace":           {anywhere, plantest.ConfigMap("team-a", "s", yes), true, true},
		"reserved name":                   {anywhere, plantest.ConfigMap("platform", "kube-root-ca.crt", yes), true, true},
		"in a source namespace":           {narrow, plantest.ConfigMap("base", "s", yes), true, true},
		"C17 out of scope":                {narrow, plantest.ConfigMap("team-a", "s", yes), true, false},
		"source namespaces are no prefix": {narrow, plantest.ConfigMap("platform-2", "s", yes), true, false},
		"copy within a source namespace":  {narrow, plantest.Marked("base", "s", yes), false, false},
		"other label":                     {other, plantest.ConfigMap("platform", "s", plantest.Label("example.com/mirror", "true")), true, true},
		"the default label of old":        {other, plantest.ConfigMap("platform", "s", yes), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			if asks, is := tc.rules.AsksToBeMirrored(tc.cm), tc.rules.IsSource(tc.cm); asks != tc.asks || is != tc.is {
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
				if !r.AllowsTarget(ns) {
					t.Errorf("got %q not allowed, want it allowed", ns)
				}
			}
			for _, ns := range tc.no {
				if r.AllowsTarget(ns) {
					t.Errorf("got %q allowed, want it not allowed", ns)
				}
			}
		})
	}
}

func TestExclusionByTheNamespace(t *testing.T) {
	phase, deleted := plantest.Namespace("team-a"), plantest.Namespace("team-a")
	phase.Status.Phase = corev1.NamespaceTerminating
	deleted.DeletionTimestamp = &metav1.Time{}
	bare := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a"}}
	other := testRules(func(o *Options) { o.Label = "example.com/mirror" })
	for name, tc := range map[string]struct {
		rules *Rules
		ns    *corev1.Namespace
		want  Exclusion
	}{
		"active":                         {testRules(), plantest.Namespace("team-a"), NotExcluded},
		"without labels":                 {testRules(), bare, NotExcluded},
		"C28 phase terminating":          {testRules(), phase, ExcludedTerminating},
		"C28 deletion timestamp":         {testRules(), deleted, ExcludedTerminating},
		"C31 opted out":                  {testRules(), plantest.Namespace("team-a", "mirror", "false"), ExcludedByOptOut},
		"C31 label of another value":     {testRules(), plantest.Namespace("team-a", "mirror", "False"), NotExcluded},
		"C31 label true":                 {testRules(), plantest.Namespace("team-a", "mirror", "true"), NotExcluded},
		"C31 opted out by another label": {other, plantest.Namespace("team-a", "example.com/mirror", "false"), ExcludedByOptOut},
		"C31 the default label of old":   {other, plantest.Namespace("team-a", "mirror", "false"), NotExcluded},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.rules.Exclusion(tc.rules.ParseSource(plantest.Source("platform", "s")), tc.ns); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}

func TestAdoptable(t *testing.T) {
	adopt := plantest.Annotation("mirror-controller.github.io/adopt", "true")
	other := plantest.Annotation(InstanceAnnotation, "other")
	for name, tc := range map[string]struct {
		cm   *corev1.ConfigMap
		want bool
	}{
		"C12 annotated":                     {plantest.ConfigMap("team-a", "s", adopt), true},
		"C12 annotated and labelled":        {plantest.ConfigMap("team-a", "s", adopt, plantest.Label("mirror", "copy")), true},
		"not annotated":                     {plantest.ConfigMap("team-a", "s"), false},
		"labelled only":                     {plantest.ConfigMap("team-a", "s", plantest.Label("mirror", "copy")), false},
		"annotated with another value":      {plantest.ConfigMap("team-a", "s", plantest.Annotation(AdoptAnnotation, "True")), false},
		"a label instead":                   {plantest.ConfigMap("team-a", "s", plantest.Label(AdoptAnnotation, "true")), false},
		"a source":                          {plantest.ConfigMap("team-a", "s", adopt, plantest.Label("mirror", "true")), false},
		"C10 copy of another instance":      {plantest.Marked("team-a", "s", adopt, other), false},
		"C10 of another, without its label": {plantest.Marked("team-a", "s", adopt, other, plantest.Without("mirror")), false},
		"C06 applied from elsewhere":        {plantest.Marked("team-a", "s", adopt, other, plantest.Annotation(CopyAnnotation, "team-b/s")), true},
		"C49 with a finalizer":              {plantest.ConfigMap("team-a", "s", adopt, plantest.Finalizer), false},
		"C49 released, with a finalizer":    {plantest.Marked("team-a", "s", adopt, plantest.Without(SourceAnnotation), plantest.Finalizer), false},
		"C08 released copy of ours":         {plantest.Marked("team-a", "s", adopt, plantest.Without(SourceAnnotation)), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := testRules().adoptable(tc.cm); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestVisible(t *testing.T) {
	other := testRules(func(o *Options) { o.Label = "example.com/mirror" })
	for value, want := range map[string]bool{"true": true, "copy": true, "false": false, "": false, "Copy": false} {
		if got := testRules().Visible(plantest.ConfigMap("team-a", "s", plantest.Label("mirror", value))); got != want {
			t.Errorf("%q: got %v, want %v", value, got, want)
		}
		if other.Visible(plantest.ConfigMap("team-a", "s", plantest.Label("mirror", value))) {
			t.Errorf("%q: got it visible by another label", value)
		}
	}
	if testRules().Visible(&corev1.ConfigMap{}) {
		t.Error("got an object without labels visible")
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
