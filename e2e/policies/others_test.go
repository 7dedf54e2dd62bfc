package policies

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/mirror-controller/mirror-controller/e2e/manual"
)

// What the controller writes besides ConfigMaps. RBAC allows it less than what is asked for here, so it takes more
// permissions.
const mayWriteAll = `
kubectl create clusterrole events-and-leases --verb='*' --resource=events,events.events.k8s.io,leases
kubectl create clusterrolebinding events-and-leases --clusterrole=events-and-leases \
  --serviceaccount=mirror-system:mirror-controller
`

// Paths of the API.
const (
	events       = "/api/v1/namespaces/platform/events"
	eventsOfTeam = "/api/v1/namespaces/team-a/events"
	eventsAtHome = "/api/v1/namespaces/mirror-system/events"
	newEvents    = "/apis/events.k8s.io/v1/namespaces/platform/events"
	leases       = "/apis/coordination.k8s.io/v1/namespaces/platform/leases"
)

const (
	notItsEvent = "may only write its own Events, about ConfigMaps and its Lease"
	notItsLease = "may only write its own Lease, mirror-system/mirror-controller"
)

// eventOf is an Event by the reporter about an object.
func eventOf(reporter, apiVersion, kind, namespace, name string) string {
	return fmt.Sprintf(`{"apiVersion": "v1", "kind": "Event", "metadata": {"name": "by-%[1]s-about-%[5]s"},
		"reason": "Mirrored", "type": "Normal", "source": {"component": %[1]q}, "reportingComponent": %[1]q,
		"involvedObject": {"apiVersion": %[2]q, "kind": %[3]q, "namespace": %[4]q, "name": %[5]q}}`,
		reporter, apiVersion, kind, namespace, name)
}

// newEvent is one of events.k8s.io about a Pod.
const newEvent = `{"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"generateName": "probe-"},
	"eventTime": "2026-01-02T03:04:05.000000Z", "reportingController": "mirror-controller", "reportingInstance": "probe",
	"action": "Mirror", "reason": "Mirrored", "type": "Normal",
	"regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": "platform", "name": "any"}}`

func leaseNamed(name string) string {
	return fmt.Sprintf(`{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": %q}}`, name)
}

// testEventsAndLeases sends Events and Leases as the controller.
// contract.TestEachKindOfWrite has those that the controller always sends
// itself: one about a copy, Restored, is best effort.
func (w *users) testEventsAndLeases(t *testing.T) {
	w.Sh(mayWriteAll)
	client := w.as(controller).CoreV1().RESTClient().(*rest.RESTClient)
	send := func(verb, path, body string) error {
		request := client.Verb(verb).AbsPath(path).Param("dryRun", "All").SetHeader("Content-Type", "application/json")
		if verb == "PATCH" {
			request = request.SetHeader("Content-Type", "application/merge-patch+json")
		}
		return request.Body([]byte(body)).Do(w.Context()).Error()
	}
	w.Until("the permissions are there", func() error { return client.Get().AbsPath(leases).Do(w.Context()).Error() })
	w.Until("Leases are confined", func() error {
		return inForce(others, send("POST", leases, leaseNamed("probe")))
	})
	const its = "mirror-controller"
	w.Sh("kubectl create -n platform -f - <<'END'\n" + eventOf("kubelet", "v1", "ConfigMap", platform, "any") +
		eventOf(its, "v1", "ConfigMap", platform, "any") + leaseNamed("of-others") + "\nEND")
	for name, c := range map[string]struct{ verb, path, body, refused string }{
		"event about its Lease": {"POST", eventsAtHome,
			eventOf(its, "coordination.k8s.io/v1", "Lease", "mirror-system", its), ""},
		"event about a copy": {"POST", eventsOfTeam,
			eventOf(its, "v1", "ConfigMap", teamA, "any"), ""},
		"its event counted": {"PATCH", events + "/by-mirror-controller-about-any",
			`{"count": 2}`, ""},
		"event about another Lease": {"POST", eventsAtHome,
			eventOf(its, "coordination.k8s.io/v1", "Lease", "mirror-system", "another"), notItsEvent},
		"event about a Secret": {"POST", events, eventOf(its, "v1", "Secret", platform, "any"), notItsEvent},
		"event about another kind ConfigMap": {"POST", events,
			eventOf(its, "example.com/v1", "ConfigMap", platform, "any"), notItsEvent},
		"event in the name of another": {"POST", events,
			eventOf("scheduler", "v1", "ConfigMap", platform, "any"), notItsEvent},
		"event of another counted": {"PATCH", events + "/by-kubelet-about-any", `{"count": 2}`, notItsEvent},
		"its event made another's": {"PATCH", events + "/by-mirror-controller-about-any",
			`{"reportingComponent": "kubelet"}`, notItsEvent},
		"events.k8s.io about a Pod":   {"POST", newEvents, newEvent, notItsEvent},
		"Lease of its name elsewhere": {"POST", leases, leaseNamed(its), notItsLease},
		"Lease of others deleted":     {"DELETE", leases + "/of-others", "", notItsLease},
	} {
		t.Run(name, func(t *testing.T) { expectAnswer(t, others, c.refused, send(c.verb, c.path, c.body)) })
	}
}

// testManualPublishers lets a group and an account publish, and asks whether they may, by the commands of the manual.
func (w *users) testManualPublishers(t *testing.T) {
	const ask = "kubectl auth can-i mirror configmaps -n platform --as="
	commands := manual.Commands(t, "deploy/docs/gitops.md", "--serviceaccount=platform:deployer")
	ofGitOps, question, found := strings.Cut(commands, ask)
	if !found {
		t.Fatalf("the manual does not ask: %s", ofGitOps)
	}
	for bind, who := range map[string]string{
		manual.Commands(t, "deploy/docs/publish.md", "--group=platform-team"): "anybody --as-group=platform-team",
		ofGitOps: question,
	} {
		w.Sh(bind)
		w.Until("the answer is yes", func() error {
			if out, _ := w.Cluster.Shell(w.Context(), ask+who).Output(); string(out) != "yes\n" {
				return fmt.Errorf("it is %q", out)
			}
			return nil
		})
	}
}

// testRefusalGrants runs the command that a refusal of the publishers' policy has: then the same request is accepted.
func (w *users) testRefusalGrants(t *testing.T) {
	const ns = "newcomers"
	w.Sh("kubectl create namespace " + ns)
	w.Sh("kubectl create rolebinding edit -n " + ns + " --clusterrole=edit --user=newcomer")
	const publish = "kubectl create configmap probe -n " + ns + " --dry-run=client -o yaml | " +
		"kubectl label --local -f - mirror=true -o yaml | kubectl create -f - --as=newcomer --dry-run=server"
	var grant string
	w.Until("it is refused with a command", func() error {
		out, err := w.Cluster.Shell(w.Context(), publish).CombinedOutput()
		var found bool
		if _, grant, found = strings.Cut(string(out), "An admin grants it: "); err != nil && found {
			return nil
		}
		return fmt.Errorf("it is %v, %s", err, out)
	})
	w.Sh(grant)
	w.Until("it is accepted", func() error { return w.Cluster.Shell(w.Context(), publish).Run() })
}
