package policies

import (
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// publisherRows are requests about sources. userRows are those of ordinary people.
func (w *Policed) publisherRows() []row {
	copied := shape(w.Copied)
	return []row{
		// Publish.
		{"publisher creates a source without a name", publisher, platform, nil, createUnnamed(source), ""},
		{"publisher publishes in another namespace", publisher, platformToo, nil, create(source), needsVerb},
		{"holder of another namespace creates a source", elsewhere, platform, nil, create(source), needsVerb},
		{"holder of the namespace creates a source", elsewhere, teamA, nil, create(source), ""},
		{"holder of the name creates a source", byName, platform, nil, create(source), ""},
		{"holder of another name creates a source", byName, platform, nil, create(source), needsVerb},
		{"holder of a name creates a source without one", byName, platform, nil, createUnnamed(source), needsVerb},
		{"owner with all verbs creates a source", owner, platform, nil, create(source), ""},
		{"cluster admin creates a source", operator, platform, nil, create(source), ""},

		// Change and withdraw.
		{"cluster admin changes the data of a source", operator, platform, source, changeBy(other), ""},
		{"holder of another namespace deletes a source", elsewhere, platform, source, remove, needsVerb},
		{"namespace controller deletes a source", namespaceController, platform, source, remove, ""},
		{"namespace controller deletes a collection with a source", namespaceController, platform, source, removeSelected, ""},
		{"garbage collector deletes a source", garbageCollector, platform, source, remove, ""},

		// What is no source.
		{"owner of a reserved name updates what was labelled before", tenant, teamB, shape(w.copyNamed("openshift-service-ca.crt")).but(noMarks, asSource), to("openshift-service-ca.crt", changeBy(other)), ""},
		{"tenant puts the label of a copy back", tenant, teamA, copied.but(asSource), changeBy(asCopy), ""},
		{"tenant deletes a copy labelled as a source", tenant, teamA, copied.but(asSource), remove, ""},
		{"controller restores a copy labelled as a source", controller, teamA, copied.but(asSource), changeBy(asCopy), ""},
		{"tenant makes a copy labelled as a source one", tenant, teamA, copied.but(asSource), changeBy(noMarks), needsVerb},
	}
}

// forgerRows are requests that make an object name itself as a copy.
func (w *Policed) forgerRows() []row {
	copied := shape(w.Copied)
	return []row{
		{"tenant updates the certificates of the cluster into a copy", tenant, teamA, nil, to("kube-root-ca.crt", change(copied)), forges},
		{"publisher elsewhere creates a copy", publisher, teamA, nil, create(copied), forges},
		{"another controller creates a copy", unlabeled, teamA, nil, create(copied), forges},
		{"publisher in the target creates a copy", elsewhere, teamA, nil, create(copied), ""},
		{"cluster admin restores a copy", operator, teamA, nil, create(copied), ""},
		{"cluster admin updates an object into a copy", operator, teamA, plain, change(copied), ""},
		{"controller creates a copy", controller, teamA, nil, create(copied), ""},
		{"controller recreates an immutable copy", controller, teamA, copied.but(suite.SetImmutable), recreate(copied), ""},
		{"controller adopts", controller, teamA, with(handOver), change(copied.but(suite.WithoutAnnotation(plan.AdoptAnnotation))), ""},
	}
}
