package main

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/component-base/metrics/testutil"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

const referencePage = "../../deploy/docs/reference.md"

// TestReferenceTables compares the generated lists of the reference with the code; -update writes them.
func TestReferenceTables(t *testing.T) {
	plantest.Section(t, referencePage, "flags", flagList(), *update)
	plantest.Section(t, referencePage, "metrics", metricList(t), *update)
}

// TestReferenceItems: the reference has each event with its type, each key of an annotation, and the metric that the
// golden file does not have.
func TestReferenceItems(t *testing.T) {
	text := read(t, referencePage)
	has := func(name string) {
		t.Helper()
		if !regexp.MustCompile("(?m)^- .*`" + name + "[`=]").MatchString(text) {
			t.Errorf("the reference has no item for %s", name)
		}
	}
	normal := found(t, referencePage, "(?m)^(.+) are Normal, the others Warnings:$")[0]
	for _, reason := range found(t, "../../mirror/plan/keys.go", `(?m)^\tReason\w+ += "(\w+)"`) {
		has(reason)
		want := slices.Contains([]string{plan.ReasonMirrored, plan.ReasonHeld, plan.ReasonRestored}, reason)
		if strings.Contains(normal, "`"+reason+"`") != want {
			t.Errorf("%s: is Normal: %v, and the reference has for these %s", reason, want, normal)
		}
	}
	for _, key := range found(t, "../../mirror/plan/keys.go", `(?m)^\t\w+Annotation += Domain \+ "/([a-z-]+)"`) {
		has(key)
	}
	if name := found(t, "metrics.go", `Name: +"(mirror_\w+)"`)[0]; !strings.Contains(text, "`"+name+"`") {
		t.Errorf("the reference has no %s", name)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	noError(t, err)
	return string(content)
}

// found returns what the group of a pattern matches in a file, at least one text.
func found(t *testing.T, file, pattern string) (all []string) {
	t.Helper()
	for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(read(t, file), -1) {
		all = append(all, match[1])
	}
	if len(all) == 0 {
		t.Fatalf("there is nothing like %s in %s", pattern, file)
	}
	return all
}

// rare are flags that hardly anybody needs: the reference has them below its list, and --help explains them.
var rare = regexp.MustCompile(
	`^(concurrent-.*|resync-period|context|kubeconfig|leader-elect-.*|profiling|help|version)$`)

// flagList is the list of the flags, in the order and the words of the help text, and of those that are rare.
func flagList() string {
	usual, list := "", []string{}
	sections := newOptions().bind()
	for _, section := range sections.Order {
		sections.FlagSets[section].VisitAll(func(f *pflag.Flag) {
			_, usage := pflag.UnquoteUsage(f)
			flag := "`" + spell(f) + "`"
			if value := strings.Trim(f.DefValue, "[]"); value != "" && value != "false" {
				flag += " (`" + value + "`)"
			}
			if rare.MatchString(f.Name) {
				list = append(list, flag)
			} else {
				usual += "- " + flag + ": " + usage + "\n"
			}
		})
	}
	return usual + "\nRarely needed, and explained by `--help`: " + strings.Join(list, ", ") + ".\n"
}

// metricList is the list of the metrics of this project, from the golden file to which a test of package mirror holds
// them.
func metricList(t *testing.T) string {
	t.Helper()
	families, err := testutil.TextToMetricFamilies(strings.NewReader(read(t, "../../mirror/testdata/metrics.txt")))
	noError(t, err)
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(families)) {
		if !strings.HasPrefix(name, "mirror_") {
			continue
		}
		values := map[string][]string{}
		for _, m := range families[name].Metric {
			for _, l := range m.Label {
				if !slices.Contains(values[l.GetName()], l.GetValue()) {
					values[l.GetName()] = append(values[l.GetName()], l.GetValue())
				}
			}
		}
		labels := []string{strings.ToLower(families[name].GetType().String())}
		for _, label := range slices.Sorted(maps.Keys(values)) {
			labels = append(labels, fmt.Sprintf("`%s`: %s", label, strings.Join(values[label], ", ")))
		}
		fmt.Fprintf(&b, "- `%s` (%s): %s\n", name, strings.Join(labels, "; "),
			strings.TrimPrefix(families[name].GetHelp(), "[STABLE] "))
	}
	return b.String()
}
