package plan

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestNewOptions(t *testing.T) {
	want := Options{ExcludeNamespaces: []string{"kube-*"}, Label: "mirror", Instance: "default", PruneLimit: 50}
	if got := NewOptions(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if a, b := NewOptions(), NewOptions(); &a.ExcludeNamespaces[0] == &b.ExcludeNamespaces[0] {
		t.Error("got defaults that share a slice: a change of one changes the other")
	}
}

func TestValidateRefuses(t *testing.T) {
	const (
		noSuchStart = "must be the beginning of a namespace name: lower-case letters, digits and '-', with a letter or digit first"
		tooLong     = "must have at most 63 characters, as the name of a namespace does"
		badExclude  = "must be the name of a namespace, or a prefix followed by '*'"
		badSource   = "must be the name of a namespace"
		badLabel    = `must be a label key of its own, such as "mirror" or "example.com/mirror"`
		badInstance = "must be 1 to 63 letters, digits, '-', '_' or '.', beginning and ending with a letter or digit"
		badKey      = `must be a key, such as "example.com/team", or a prefix followed by '*'`
	)
	long := strings.Repeat("a", 64)
	prefix := func(p string) func(*Options) { return func(o *Options) { o.NamespacePrefixes = []string{p} } }
	exclude := func(e string) func(*Options) { return func(o *Options) { o.ExcludeNamespaces = []string{e} } }
	source := func(n string) func(*Options) { return func(o *Options) { o.SourceNamespaces = []string{n} } }
	mirrorLabel := func(k string) func(*Options) { return func(o *Options) { o.Label = k } }
	instance := func(i string) func(*Options) { return func(o *Options) { o.Instance = i } }
	copyLabel := func(k string) func(*Options) { return func(o *Options) { o.CopyLabels = []string{k} } }
	copyAnnotation := func(k string) func(*Options) { return func(o *Options) { o.CopyAnnotations = []string{k} } }

	for name, tc := range map[string]struct {
		edit func(*Options)
		want string
	}{
		"no prefix": {func(o *Options) { o.NamespacePrefixes = nil },
			"--namespace-prefix: required and never empty: give a prefix of the names of the target namespaces, or set --all-namespaces"},
		"all namespaces and a prefix": {func(o *Options) { o.AllNamespaces = true },
			"--all-namespaces=true: cannot be combined with --namespace-prefix: give one of the two"},
		"prefix empty":           {prefix(""), `--namespace-prefix="": must not be empty; to mirror into all namespaces, set --all-namespaces`},
		"prefix in upper case":   {prefix("Team"), `--namespace-prefix="Team": ` + noSuchStart},
		"prefix with a blank":    {prefix(" team"), `--namespace-prefix=" team": ` + noSuchStart},
		"prefix with a dash":     {prefix("-team"), `--namespace-prefix="-team": ` + noSuchStart},
		"prefix with underscore": {prefix("team_"), `--namespace-prefix="team_": ` + noSuchStart},
		"prefix with a dot":      {prefix("team.a"), `--namespace-prefix="team.a": ` + noSuchStart},
		"prefix with a star":     {prefix("team-*"), `--namespace-prefix="team-*": ` + noSuchStart},
		"prefix with a line end": {prefix("team\n"), `--namespace-prefix="team\n": ` + noSuchStart},
		"prefix not in ASCII":    {prefix("té"), `--namespace-prefix="té": ` + noSuchStart},
		"prefix too long":        {prefix(long), `--namespace-prefix="` + long + `": ` + tooLong},

		"selector malformed": {func(o *Options) { o.NamespaceSelector = "team=a=b" },
			`--namespace-selector="team=a=b": must be a label selector, such as "team,env in (dev,test)": found '=', expected: ',' or 'end of string'`},
		"prune limit too high":    {func(o *Options) { o.PruneLimit = 101 }, "--prune-limit=101%: must be a percentage from 0% to 100%, such as 50%"},
		"exclusion empty":         {exclude(""), `--exclude-namespace="": ` + badExclude},
		"exclusion of everything": {exclude("*"), `--exclude-namespace="*": ` + badExclude},
		"exclusion in upper case": {exclude("Kube-*"), `--exclude-namespace="Kube-*": ` + badExclude},
		"exclusion of two stars":  {exclude("kube-**"), `--exclude-namespace="kube-**": ` + badExclude},
		"exclusion, star inside":  {exclude("kube-*-x"), `--exclude-namespace="kube-*-x": ` + badExclude},
		"exclusion too long":      {exclude(long), `--exclude-namespace="` + long + `": ` + badExclude},

		"source namespace empty":    {source(""), `--source-namespace="": ` + badSource},
		"source namespace, case":    {source("Platform"), `--source-namespace="Platform": ` + badSource},
		"source namespace, dash":    {source("platform-"), `--source-namespace="platform-": ` + badSource},
		"source namespace, pattern": {source("platform*"), `--source-namespace="platform*": ` + badSource},
		"source namespace, object":  {source("platform/settings"), `--source-namespace="platform/settings": ` + badSource},
		"source namespace too long": {source(long), `--source-namespace="` + long + `": ` + badSource},

		"mirror label empty":       {mirrorLabel(""), `--mirror-label="": ` + badLabel},
		"mirror label with value":  {mirrorLabel("mirror=true"), `--mirror-label="mirror=true": ` + badLabel},
		"mirror label, two slash":  {mirrorLabel("a/b/c"), `--mirror-label="a/b/c": ` + badLabel},
		"mirror label, no name":    {mirrorLabel("example.com/"), `--mirror-label="example.com/": ` + badLabel},
		"mirror label, no domain":  {mirrorLabel("/mirror"), `--mirror-label="/mirror": ` + badLabel},
		"mirror label, managed-by": {mirrorLabel("app.kubernetes.io/managed-by"), `--mirror-label="app.kubernetes.io/managed-by": ` + badLabel},

		"instance empty":        {instance(""), `--instance="": ` + badInstance},
		"instance with a blank": {instance("a b"), `--instance="a b": ` + badInstance},
		"instance with a slash": {instance("a/b"), `--instance="a/b": ` + badInstance},
		"instance, first dash":  {instance("-a"), `--instance="-a": ` + badInstance},
		"instance, last dot":    {instance("a."), `--instance="a.": ` + badInstance},
		"instance too long":     {instance(long), `--instance="` + long + `": ` + badInstance},

		"copied label empty":            {copyLabel(""), `--copy-label="": ` + badKey},
		"copied label with a value":     {copyLabel("app=web"), `--copy-label="app=web": ` + badKey},
		"C59 copied label of Argo CD":   {copyLabel("argocd.argoproj.io/instance"), `--copy-label="argocd.argoproj.io/instance": must be a key of your own: those of other tools and of the controller, here argocd.argoproj.io/*, are never copied`},
		"C59 copied annotation of Flux": {copyAnnotation("reconcile.fluxcd.io/requestedAt"), `--copy-annotation="reconcile.fluxcd.io/requestedAt": must be a key of your own: those of other tools and of the controller, here *.fluxcd.io/*, are never copied`},
		"C59 the mirror label":          {copyLabel("mirror"), `--copy-label="mirror": must be a key of your own: those of other tools and of the controller, here mirror, are never copied`},
		"C59 a key of the manager":      {copyLabel("olm.owner"), `--copy-label="olm.owner": must be a key of your own: those of other tools and of the controller, here olm.*, are never copied`},
		"copied label, star first":      {copyLabel("*team"), `--copy-label="*team": ` + badKey},
		"copied label, star inside":     {copyLabel("a*b*"), `--copy-label="a*b*": ` + badKey},
		"copied label, no name":         {copyLabel("example.com/"), `--copy-label="example.com/": ` + badKey},
		"copied label, no domain":       {copyLabel("/team"), `--copy-label="/team": ` + badKey},
		"copied label, two slashes":     {copyLabel("a/b/c*"), `--copy-label="a/b/c*": ` + badKey},
		"copied label too long":         {copyLabel(long), `--copy-label="` + long + `": ` + badKey},
		"copied annotation empty":       {copyAnnotation(""), `--copy-annotation="": ` + badKey},
		"copied annotation, blank":      {copyAnnotation("a b"), `--copy-annotation="a b": ` + badKey},
		"copied annotation, no name":    {copyAnnotation("example.com/"), `--copy-annotation="example.com/": ` + badKey},
	} {
		t.Run(name, func(t *testing.T) {
			err := testOptions(tc.edit).Validate()
			if err == nil {
				t.Fatalf("got no error, want %q", tc.want)
			}
			if err.Error() != tc.want {
				t.Errorf("got %q, want %q", err, tc.want)
			}
		})
	}
}

func TestValidateAccepts(t *testing.T) {
	for name, edit := range map[string]func(*Options){
		"one prefix":                  func(*Options) {},
		"several prefixes":            func(o *Options) { o.NamespacePrefixes = []string{"team-", "0", "a--b"} },
		"C09 prefix of 63 characters": func(o *Options) { o.NamespacePrefixes = []string{strings.Repeat("a", 63)} },
		"all namespaces":              func(o *Options) { o.NamespacePrefixes, o.AllNamespaces = nil, true },
		"a selector":                  func(o *Options) { o.NamespaceSelector = "team,env in (dev,test),!internal" },
		"no exclusion":                func(o *Options) { o.ExcludeNamespaces = nil },
		"exclusion by name":           func(o *Options) { o.ExcludeNamespaces = []string{"team-x", "kube-*", "t*"} },
		"source namespaces":           func(o *Options) { o.SourceNamespaces = []string{"platform", "a", strings.Repeat("a", 63)} },
		"label with a domain":         func(o *Options) { o.Label = "example.com/mirror" },
		"instance of 63 characters":   func(o *Options) { o.Instance = strings.Repeat("A", 63) },
		"instance with punctuation":   func(o *Options) { o.Instance = "a-b_c.D" },
		"copied keys and patterns": func(o *Options) {
			o.CopyLabels = []string{"*", "app", "app*", "example.com/*", "example.com/te*", "example.*", "a-*", "Team_A"}
			o.CopyAnnotations = o.CopyLabels
		},
		"a prefix repeated": func(o *Options) { o.NamespacePrefixes = []string{"team-", "team-"} },
	} {
		t.Run(name, func(t *testing.T) {
			if err := testOptions(edit).Validate(); err != nil {
				t.Errorf("got %v, want no error", err)
			}
		})
	}
}

func TestValidateReportsAllProblemsAtOnce(t *testing.T) {
	o := &Options{
		NamespacePrefixes: []string{"", "team-", "Team"},
		AllNamespaces:     true,
		ExcludeNamespaces: []string{"*", "X"},
		SourceNamespaces:  []string{"a/b", "c."},
		Label:             "?",
		Instance:          "!",
		CopyLabels:        []string{"=", "app"},
		CopyAnnotations:   []string{"+"},
	}
	err := o.Validate()
	if err == nil {
		t.Fatal("got no error")
	}
	var flags []string
	for line := range strings.SplitSeq(err.Error(), "\n") {
		flag, _, _ := strings.Cut(line, ":")
		flags = append(flags, flag)
	}
	slices.Sort(flags)
	want := []string{
		"--all-namespaces=true", `--copy-annotation="+"`, `--copy-label="="`,
		`--exclude-namespace="*"`, `--exclude-namespace="X"`, `--instance="!"`, `--mirror-label="?"`,
		`--namespace-prefix=""`, `--namespace-prefix="Team"`,
		`--source-namespace="a/b"`, `--source-namespace="c."`,
	}
	if !slices.Equal(flags, want) {
		t.Errorf("got problems with\n%q, want\n%q", flags, want)
	}
}

func TestPercent(t *testing.T) {
	for value, want := range map[string]Percent{"0%": 0, "1%": 1, "50%": 50, "100%": 100} {
		p := Percent(33)
		if err := p.Set(value); err != nil || p != want {
			t.Errorf("%s: got %d, error %v, want %d", value, p, err, want)
		}
		if p.String() != value {
			t.Errorf("got %q, want %q", p.String(), value)
		}
	}
	const want = "must be a percentage from 0% to 100%, such as 50%"
	for _, value := range []string{"", "%", "50", "-1%", "101%", "50%%", "0.5%", "half", " 50%", "50 %", "1e2%", "99999999999999999999%"} {
		p := Percent(33)
		if err := p.Set(value); err == nil || err.Error() != want || p != 33 {
			t.Errorf("%q: got %d, error %v, want it unchanged and %q", value, p, err, want)
		}
	}
}

func TestC17PruneLimit(t *testing.T) {
	for name, tc := range map[string]struct {
		limit       Percent
		part, whole int
		want        bool
	}{
		"nothing to delete":             {50, 0, 100, false},
		"nothing at all":                {50, 0, 0, false},
		"C56 three of three":            {50, 3, 3, true},
		"C56 eight of eight":            {50, 8, 8, true},
		"one of two":                    {50, 1, 2, true},
		"one of three":                  {50, 1, 3, false},
		"just below the limit":          {50, 49, 100, false},
		"the limit itself":              {50, 50, 100, true},
		"above the limit":               {50, 51, 100, true},
		"below the limit by a fraction": {50, 500, 1001, false},
		"above the limit by a fraction": {50, 501, 1001, true},
		"1%: below":                     {1, 11, 1101, false},
		"1%: at":                        {1, 11, 1100, true},
		"C50 0%: not one":               {0, 1, 100000, true},
		"C50 0%: nothing to delete":     {0, 0, 1000, false},
		"100% is no limit":              {100, 1000, 1000, false},
		"99% is one":                    {99, 1000, 1000, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.limit.Exceeded(tc.part, tc.whole); got != tc.want {
				t.Errorf("got %v for %d of %d at %s, want %v", got, tc.part, tc.whole, tc.limit.String(), tc.want)
			}
		})
	}
}
