package installation

import (
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
)

var account = types.NamespacedName{Namespace: "mirror-system", Name: "account"}

func TestLeaseOf(t *testing.T) {
	arguments := deploymentOf("d", "account", "--leader-elect", "--leader-elect-resource-name=blue", "--leader-elect-resource-namespace=leases")
	for name, test := range map[string]struct {
		in   Installation
		want string
	}{
		"default":     {Installation{Deployment: new(deploymentOf("d", "account", "--leader-elect"))}, "mirror-system/mirror-controller"},
		"arguments":   {Installation{Deployment: &arguments}, "leases/blue"},
		"annotations": {Installation{Binding: new(bindingOf("b", "account", "leader-elect-resource-name", "blue"))}, "mirror-system/blue"},
		"arguments before annotations": {Installation{Deployment: new(deploymentOf("d", "account", "--leader-elect")),
			Binding: new(bindingOf("b", "account", "leader-elect-resource-name", "blue"))}, "mirror-system/mirror-controller"},
	} {
		test.in.Account = account
		l := leaseOf("somebody", time.Now())
		l.Namespace, l.Name, _ = strings.Cut(test.want, "/")
		text, runs, err := test.in.Leader(t.Context(), fake.NewClientset(l))
		if want := "somebody holds Lease " + test.want; text != want || !runs || err != nil {
			t.Errorf("%s: got %q, %v and %v, want %q", name, text, runs, err, want)
		}
	}
}

func TestLeader(t *testing.T) {
	const (
		held    = "somebody holds Lease mirror-system/mirror-controller"
		nobody  = "nobody holds Lease mirror-system/mirror-controller"
		expired = "somebody held Lease mirror-system/mirror-controller, and nobody has renewed it since "
	)
	now, before := leaseOf("somebody", time.Now()), leaseOf("somebody", time.Now().Add(-time.Minute))
	for name, test := range map[string]struct {
		arguments string
		lease     *coordinationv1.Lease
		ready     int32
		text      string // the beginning
		runs      bool
	}{
		"held":                      {"--leader-elect", now, 1, held, true},
		"expired":                   {"--leader-elect", before, 1, expired, false},
		"given back":                {"--leader-elect", leaseOf("", time.Now()), 1, nobody, false},
		"no Lease":                  {"--leader-elect", nil, 1, nobody, false},
		"without Leases":            {"--leader-elect=false", nil, 1, "Deployment mirror-system/d has 1 ready replicas", true},
		"without Leases, not ready": {"--leader-elect=false", nil, 0, "", false},
	} {
		d := deploymentOf("d", "account", append(strings.Fields(test.arguments), "--namespace-prefix=team-")...)
		d.Status.ReadyReplicas = test.ready
		in := &Installation{Key: types.NamespacedName{Namespace: "mirror-system", Name: "d"}, Account: account, Deployment: &d}
		client := fake.NewClientset()
		if test.lease != nil {
			client = fake.NewClientset(test.lease)
		}
		text, runs, err := in.Leader(t.Context(), client)
		if !strings.HasPrefix(text, test.text) || (text == "") != (test.text == "") || runs != test.runs || err != nil {
			t.Errorf("%s: got %q, %v and %v, want %q and %v", name, text, runs, err, test.text, test.runs)
		}
		by := ""
		switch {
		case runs:
			by = text
		case test.ready > 0:
			by = "Deployment mirror-system/d has 1 ready replicas"
		}
		if got, err := in.Restorer(t.Context(), client); got != by || err != nil {
			t.Errorf("%s: got %q and %v, want %q", name, got, err, by)
		}
		if got := in.Absence(t.Context(), client); (got == "") != (runs || text == "") || got != "" && got != "No controller runs: "+text+"." {
			t.Errorf("%s: got %q", name, got)
		}
	}
}
