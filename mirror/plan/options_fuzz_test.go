package plan

import (
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

// FuzzNamespaceName compares validNamespace with the function of apimachinery that it replaces.
func FuzzNamespaceName(f *testing.F) {
	f.Fuzz(func(t *testing.T, name string) {
		if got, want := validNamespace(name), len(validation.IsDNS1123Label(name)) == 0; got != want {
			t.Errorf("%q: got valid %v, want %v", name, got, want)
		}
	})
}

// FuzzKeyPattern cuts a key somewhere and puts a '*' there. A beginning of a valid key is a valid flag, and selects the
// keys that begin so and no others. A beginning of no valid key is refused.
func FuzzKeyPattern(f *testing.F) {
	f.Fuzz(func(t *testing.T, key, other string, at uint16) {
		stem := key[:int(at)%(len(key)+1)]
		pattern := stem + "*"
		accepted := testOptions(func(o *Options) { o.CopyLabels = []string{pattern} }).Validate() == nil
		if valid := len(validation.IsQualifiedName(key)) == 0; valid && !accepted && len(stem) < len(key) && !strings.HasPrefix(key[len(stem):], "/") {
			t.Errorf("got %q refused, want it accepted as the beginning of the key %q", pattern, key)
		}
		if excluded := testOptions(func(o *Options) { o.ExcludeNamespaces = []string{pattern} }).Validate() == nil; excluded != beginsAName(stem) {
			t.Errorf("got %q accepted as an exclusion %v, want %v", pattern, excluded, beginsAName(stem))
		}
		for _, k := range []string{key, other, stem, stem + other, pattern} {
			if got, want := (keyPatterns{pattern}).match(k), strings.HasPrefix(k, stem); got != want {
				t.Errorf("%q and %q: got a match %v, want %v", pattern, k, got, want)
			}
			exact := strings.TrimRight(key, "*")
			if got, want := (keyPatterns{exact}).match(k), k == exact; got != want {
				t.Errorf("%q and %q: got a match %v, want %v", exact, k, got, want)
			}
		}
	})
}

// FuzzPercent parses a percentage: digits and a percent sign.
func FuzzPercent(f *testing.F) {
	f.Fuzz(func(t *testing.T, value string) {
		digits, sign := strings.CutSuffix(value, "%")
		want, isNumber := new(big.Int).SetString(digits, 10)
		valid := sign && isNumber && !strings.Contains(digits, "_") && want.Sign() >= 0 && want.Cmp(big.NewInt(100)) <= 0
		p := Percent(33)
		err := p.Set(value)
		switch {
		case (err == nil) != valid:
			t.Errorf("got %d with error %v, want it accepted %v", p, err, valid)
		case err != nil && p != 33:
			t.Errorf("got %d after an error, want it unchanged", p)
		case err == nil && int64(p) != want.Int64():
			t.Errorf("got %d, want %d", p, want)
		case err == nil:
			again := Percent(33)
			if err := again.Set(p.String()); err != nil || again != p {
				t.Errorf("got %d with error %v from %q, want %d", again, err, p.String(), p)
			}
		}
	})
}

// FuzzPruneLimit compares the prune limit with exact fractions.
func FuzzPruneLimit(f *testing.F) {
	f.Fuzz(func(t *testing.T, limit byte, part, more uint32) {
		p := Percent(limit % 101)
		whole := int64(part) + int64(more)
		reached := whole == 0 || big.NewRat(int64(part), whole).Cmp(big.NewRat(int64(p), 100)) >= 0
		want := p != 100 && part > 0 && reached
		if got := p.Exceeded(int(part), int(whole)); got != want {
			t.Errorf("%d of %d at %s: got exceeded %v, want %v", part, whole, p.String(), got, want)
		}
	})
}

// FuzzOptions validates any values. The error has one line for each mistake.
func FuzzOptions(f *testing.F) {
	f.Fuzz(func(t *testing.T, prefixes, excluded, sources, mirrorLabel, instance, patterns string, all bool) {
		split := func(s string) []string {
			if s == "" {
				return nil
			}
			return strings.Split(s, ",")
		}
		o := &Options{
			NamespacePrefixes: split(prefixes), AllNamespaces: all, ExcludeNamespaces: split(excluded), SourceNamespaces: split(sources),
			Label: mirrorLabel, Instance: instance, CopyLabels: split(patterns), CopyAnnotations: split(patterns),
		}
		mistakes := 0
		count := func(wrong bool) {
			if wrong {
				mistakes++
			}
		}
		count(all == (len(o.NamespacePrefixes) > 0))
		for _, p := range o.NamespacePrefixes {
			count(!beginsAName(p))
		}
		for _, e := range o.ExcludeNamespaces {
			stem, wild := strings.CutSuffix(e, "*")
			count(!beginsAName(stem) || !wild && !isAName(stem))
		}
		for _, s := range o.SourceNamespaces {
			count(!isAName(s))
		}
		count(len(validation.IsQualifiedName(mirrorLabel)) > 0 || mirrorLabel == "app.kubernetes.io/managed-by")
		count(instance == "" || len(validation.IsValidLabelValue(instance)) > 0)
		for _, p := range slices.Concat(o.CopyLabels, o.CopyAnnotations) {
			count(!validKeyPattern(p)) // see FuzzKeyPattern
		}

		before := fmt.Sprintf("%+v", o)
		err := o.Validate()
		if after := fmt.Sprintf("%+v", o); after != before {
			t.Errorf("got the options changed to %s, want %s", after, before)
		}
		if err == nil {
			if mistakes > 0 {
				t.Errorf("got %s accepted, want %d mistakes", before, mistakes)
			}
			return
		}
		lines := strings.Split(err.Error(), "\n")
		if len(lines) != mistakes {
			t.Errorf("%s: got %d lines %q, want %d", before, len(lines), lines, mistakes)
		}
		for _, line := range lines {
			if !strings.HasPrefix(line, "--") || strings.ContainsAny(line, "\r\n") {
				t.Errorf("got the line %q, want it to begin with a flag", line)
			}
		}
	})
}
