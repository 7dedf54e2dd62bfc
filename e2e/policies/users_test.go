package policies

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const setLabel = `{"metadata":{"labels":{"mirror":"true"}}}`

// userRows are requests of people who may edit ConfigMaps, in a target and where sources are, without the verb and with it.
func (w *Policed) userRows() []row {
	copied := shape(w.Copied)
	backup := func(namespace, name string) []suite.Option { return w.MarksOfCopy(platform, teamB, name) }
	const setMarks = `{"metadata":{"annotations":{"mirror-controller.github.io/copy":"team-a/tenant-patches-the-marks-of-a-copy",` +
		`"mirror-controller.github.io/instance":"default"}}}`
	return []row{
		// Forge.
		{"tenant creates a copy", tenant, teamA, nil, create(copied), forges},
		{"tenant creates a copy without the label", tenant, teamA, nil, create(copied.but(noLabel)), forges},
		{"tenant creates a copy of no source", tenant, teamA,
			nil, create(copied.but(suite.WithoutAnnotation(plan.SourceAnnotation))), forges},
		{"tenant updates an object into a copy", tenant, teamA, plain, change(copied), forges},
		{"tenant patches the marks of a copy", tenant, teamA, plain, patch(types.MergePatchType, setMarks), forges},
		{"tenant updates a labelled object into a copy", tenant, teamA, with(asCopy), change(copied), forges},
		{"tenant updates a restored backup into a copy", tenant, teamA, backup, change(copied), forges},
		{"tenant updates a copy of another instance", tenant, teamA, copied.but(otherInstance), change(copied), forges},
		{"tenant recreates a copy", tenant, teamA, copied, recreate(copied), forges},
		{"tenant restores a backup elsewhere", tenant, teamA, nil, create(backup), ""},
		{"tenant creates a copy of another instance", tenant, teamA, nil, create(copied.but(otherInstance)), ""},
		{"tenant creates an object with the label of a copy", tenant, teamA, nil, create(with(asCopy)), ""},

		// Edit.
		{"tenant edits a copy", tenant, teamA, copied, changeBy(other), ""},
		{"tenant deletes a copy by hand", tenant, teamA, copied, remove, ""},

		{"tenant takes the marks off a copy", tenant, teamA, copied, changeBy(noMarks), ""},

		// Publish.
		{"tenant publishes from a target", tenant, teamA, nil, create(source), needsVerb},
		{"tenant labels an object of a target as a source", tenant, teamA, plain, changeBy(asSource), needsVerb},
		{"tenant makes a copy a source", tenant, teamA, copied, changeBy(asSource, noMarks), needsVerb},
		{"tenant restores a copy elsewhere as a source", tenant, teamA, nil, create(shape(backup).but(asSource)), needsVerb},

		// Publish.
		{"editor creates a source", tenant, platform, nil, create(source), needsVerb},
		{"editor creates a source without a name", tenant, platform, nil, createUnnamed(source), needsVerb},
		{"editor applies a source", tenant, platform, nil, apply("mirror", "true"), needsVerb},
		{"editor sets the label by update", tenant, platform, plain, changeBy(asSource), needsVerb},
		{"editor sets the label by merge patch", tenant, platform, plain, patch(types.MergePatchType, setLabel), needsVerb},
		{"editor sets the label by strategic merge patch", tenant, platform,
			plain, patch(types.StrategicMergePatchType, setLabel), needsVerb},
		{"editor sets the label by JSON patch", tenant, platform,
			plain, patch(types.JSONPatchType, `[{"op":"add","path":"/metadata/labels","value":{"mirror":"true"}}]`), needsVerb},
		{"editor sets the label by apply", tenant, platform, plain, apply("mirror", "true"), needsVerb},

		// Change and withdraw.
		{"editor changes the data of a source", tenant, platform, source, changeBy(other), needsVerb},
		{"editor patches the data of a source", tenant, platform,
			source, patch(types.MergePatchType, `{"data":{"key":"other"}}`), needsVerb},
		{"editor applies the data of a source", tenant, platform, source, apply("team", "red"), needsVerb},
		{"editor narrows a source", tenant, platform,
			source, changeBy(suite.WithAnnotation(plan.PrefixAnnotation, "team-b")), needsVerb},
		{"editor has a source garbage collected", tenant, platform, source, changeBy(owned), needsVerb},
		{"editor passes a source off as a copy", tenant, platform, source, change(copied.but(asSource)), needsVerb},
		{"editor unpublishes", tenant, platform, source, changeBy(noLabel), needsVerb},
		{"editor sets the label of a source to another value", tenant, platform,
			source, changeBy(suite.WithLabel(plan.DefaultLabel, "off")), needsVerb},
		{"editor deletes a source", tenant, platform, source, remove, needsVerb},
		{"editor deletes a collection with a source", tenant, platform, source, removeSelected, needsVerb},

		// What is no source.
		{"editor creates a plain object", tenant, platform, nil, create(plain), ""},
		{"editor changes a plain object", tenant, platform, plain, changeBy(other), ""},
		{"editor deletes a plain object", tenant, platform, plain, remove, ""},
		{"editor sets the label to another value", tenant, platform,
			plain, changeBy(suite.WithLabel(plan.DefaultLabel, "off")), ""},
		{"editor creates a copy outside the targets", tenant, platform, nil, create(copied), forges},
		{"publisher creates a source", publisher, platform, nil, create(source), ""},
		{"publisher applies a source", publisher, platform, nil, apply("mirror", "true"), ""},
		{"publisher sets the label by update", publisher, platform, plain, changeBy(asSource), ""},
		{"publisher changes the data of a source", publisher, platform, source, changeBy(other), ""},
		{"publisher unpublishes", publisher, platform, source, changeBy(noLabel), ""},
		{"publisher deletes a collection with a source", publisher, platform, source, removeSelected, ""},
		{"publisher passes a source off as a copy", publisher, platform, source, change(copied.but(asSource)), ""},
		{"publisher forges a copy at home", publisher, platform, nil, create(w.copyOf(teamA, "")), ""},
	}
}
