package policies

import (
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const (
	needsVerb = "needs the verb \"mirror\" on configmaps there. " +
		"An admin grants it: kubectl create rolebinding publishers -n "
	forges = "only the controller of ClusterRoleBinding mirror-controller creates copies of instance \"default\""
)

// publisherRows are requests about sources, of people who may edit ConfigMaps, without the verb and with it.
func (w *Policed) publisherRows() []row {
	copied := w.copied
	const reserved = "openshift-service-ca.crt"
	return append(bySystem(platform, asSource), []row{
		// Publish, change and withdraw.
		{"editor creates a source", tenant, platform, nil, create(asSource), needsVerb},
		{"editor labels an object", tenant, platform, have(), change(asSource), needsVerb},
		{"editor labels an object by a patch", tenant, platform, have(),
			patch(`[{"op": "add", "path": "/metadata/labels", "value": {"mirror": "true"}}]`), needsVerb},
		{"editor changes a source", tenant, platform, have(asSource), change(other), needsVerb},
		{"editor unpublishes", tenant, platform, have(asSource), change(noLabel), needsVerb},
		{"editor deletes a source", tenant, platform, have(asSource), remove, needsVerb},
		{"editor passes a source off as a copy", tenant, platform, have(asSource), change(copied, asSource), needsVerb},
		{"publisher creates a source", publisher, platform, nil, create(asSource), ""},
		{"publisher changes a source", publisher, platform, have(asSource), change(other), ""},
		{"publisher deletes a source", publisher, platform, have(asSource), remove, ""},
		{"publisher publishes in another namespace", publisher, platformToo, nil, create(asSource), needsVerb},
		{"holder of the name creates a source", byName, platform, nil, create(asSource), ""},
		{"holder of another name creates a source", byName, platform, nil, create(asSource), needsVerb},
		{"holder of a name creates a source without one", byName, platform, nil, create(unnamed, asSource), needsVerb},
		{"cluster admin creates a source", operator, platform, nil, create(asSource), ""},
		{"editor lets a deleted source go", tenant, platform, have(asSource, held), w.letGo(operator), ""},
		{"editor creates a source by the label of another controller", tenant, platform,
			nil, create(suite.WithLabel("share", plan.SourceValue)), needsVerb},

		// What is no source.
		{"editor changes a plain object", tenant, platform, have(), change(other), ""},
		{"editor sets the label to another value", tenant, platform,
			have(), change(suite.WithLabel(plan.DefaultLabel, "off")), ""},
		{"owner of a reserved name updates what was labelled before", tenant, teamB,
			have(w.copyNamed(reserved), noMarks, asSource), to(reserved, change(other)), ""},
		{"tenant puts the label of a copy back", tenant, teamA, have(copied, asSource), change(asCopy), ""},
		{"tenant makes a copy labelled as a source one", tenant, teamA, have(copied, asSource), change(noMarks), needsVerb},
	}...)
}

// forgerRows are requests that make an object name itself as a copy.
func (w *Policed) forgerRows() []row {
	copied := w.copied
	return []row{
		{"tenant creates a copy of a third instance", tenant, teamA, nil,
			create(copied, thirdInstance),
			"only the controller of ClusterRoleBinding third creates copies of instance \"third\""},
		{"tenant creates a copy", tenant, teamA, nil, create(copied, noLabel), forges},
		{"tenant updates an object into a copy", tenant, teamA, have(), change(copied), forges},
		{"tenant updates a restored backup into a copy", tenant, teamA, have(w.backup), change(copied), forges},
		{"tenant updates a copy of another instance", tenant, teamA, have(copied, otherInstance), change(copied), forges},
		{"tenant updates the certificates of the cluster into a copy", tenant, teamA,
			nil, to("kube-root-ca.crt", change(copied)), forges},
		{"tenant restores a backup elsewhere", tenant, teamA, nil, create(w.backup), ""},
		{"tenant creates a copy of another instance", tenant, teamA, nil, create(copied, otherInstance), ""},
		{"tenant edits a copy", tenant, teamA, have(copied), change(other), ""},
		{"tenant takes the marks off a copy", tenant, teamA, have(copied), change(noMarks), ""},
		{"publisher in the target creates a copy", elsewhere, teamA, nil, create(copied), ""},
		{"another controller creates a copy", unlabeled, teamA, nil, create(copied), forges},
		{"controller creates a copy", controller, teamA, nil, create(copied), ""},
	}
}
