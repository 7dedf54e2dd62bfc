package policies

import (
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const (
	needsVerb = "needs the verb \"mirror\" on configmaps there. An admin grants it: kubectl create rolebinding publishers -n "
	forges    = "only the controller of ClusterRoleBinding mirror-controller creates copies of instance \"default\""
)

// publisherRows are requests about sources, of people who may edit ConfigMaps, without the verb and with it.
func (w *Policed) publisherRows() []row {
	copied := shape(w.Copied)
	const reserved = "openshift-service-ca.crt"
	return append(bySystem(platform, source), []row{
		// Publish, change and withdraw.
		{"editor creates a source", tenant, platform, nil, create(source), needsVerb},
		{"editor labels an object", tenant, platform, plain, changeBy(asSource), needsVerb},
		{"editor changes a source", tenant, platform, source, changeBy(other), needsVerb},
		{"editor unpublishes", tenant, platform, source, changeBy(noLabel), needsVerb},
		{"editor deletes a source", tenant, platform, source, remove, needsVerb},
		{"editor passes a source off as a copy", tenant, platform, source, change(copied.but(asSource)), needsVerb},
		{"publisher creates a source", publisher, platform, nil, create(source), ""},
		{"publisher changes a source", publisher, platform, source, changeBy(other), ""},
		{"publisher deletes a source", publisher, platform, source, remove, ""},
		{"publisher publishes in another namespace", publisher, platformToo, nil, create(source), needsVerb},
		{"holder of the name creates a source", byName, platform, nil, create(source), ""},
		{"holder of another name creates a source", byName, platform, nil, create(source), needsVerb},
		{"holder of a name creates a source without one", byName, platform, nil, createUnnamed(source), needsVerb},
		{"cluster admin creates a source", operator, platform, nil, create(source), ""},
		{"editor lets a deleted source go", tenant, platform, source.but(held), w.letGo(operator), ""},
		{"editor creates a source by the label of another controller", tenant, platform,
			nil, create(with(suite.WithLabel("share", plan.SourceValue))), needsVerb},

		// What is no source.
		{"editor changes a plain object", tenant, platform, plain, changeBy(other), ""},
		{"editor sets the label to another value", tenant, platform,
			plain, changeBy(suite.WithLabel(plan.DefaultLabel, "off")), ""},
		{"owner of a reserved name updates what was labelled before", tenant, teamB,
			shape(w.copyNamed(reserved)).but(noMarks, asSource), to(reserved, changeBy(other)), ""},
		{"tenant puts the label of a copy back", tenant, teamA, copied.but(asSource), changeBy(asCopy), ""},
		{"tenant makes a copy labelled as a source one", tenant, teamA, copied.but(asSource), changeBy(noMarks), needsVerb},
	}...)
}

// forgerRows are requests that make an object name itself as a copy.
func (w *Policed) forgerRows() []row {
	copied := shape(w.Copied)
	backup := func(namespace, name string) []suite.Option { return w.MarksOfCopy(platform, teamB, name) }
	return []row{
		{"tenant creates a copy of a third instance", tenant, teamA, nil,
			create(copied.but(suite.WithAnnotation(plan.InstanceAnnotation, "third"))),
			"only the controller of ClusterRoleBinding third creates copies of instance \"third\""},
		{"tenant creates a copy", tenant, teamA, nil, create(copied.but(noLabel)), forges},
		{"tenant updates an object into a copy", tenant, teamA, plain, change(copied), forges},
		{"tenant updates a restored backup into a copy", tenant, teamA, backup, change(copied), forges},
		{"tenant updates a copy of another instance", tenant, teamA, copied.but(otherInstance), change(copied), forges},
		{"tenant updates the certificates of the cluster into a copy", tenant, teamA,
			nil, to("kube-root-ca.crt", change(copied)), forges},
		{"tenant restores a backup elsewhere", tenant, teamA, nil, create(backup), ""},
		{"tenant creates a copy of another instance", tenant, teamA, nil, create(copied.but(otherInstance)), ""},
		{"tenant edits a copy", tenant, teamA, copied, changeBy(other), ""},
		{"tenant takes the marks off a copy", tenant, teamA, copied, changeBy(noMarks), ""},
		{"publisher in the target creates a copy", elsewhere, teamA, nil, create(copied), ""},
		{"another controller creates a copy", unlabeled, teamA, nil, create(copied), forges},
		{"controller creates a copy", controller, teamA, nil, create(copied), ""},
	}
}
