package storm

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
)

// key is the namespace and the name of a ConfigMap.
type key = types.NamespacedName

// late is how long after its sender has lost the Lease a write may arrive: a fault may pause its sender, or keep it on
// the way, and another fault may delay it.
const late = longestFault + longestDelay + 2*time.Second

// storedAt returns the state that a ConfigMap has had from a resourceVersion on.
type storedAt func(at key, version string) (*corev1.ConfigMap, error)

// judge returns which writes of ConfigMaps by the users that are ours break a rule.
func judge(events []cluster.Event, ours []string, stored storedAt) (problems []error) {
	slices.SortStableFunc(events, func(a, b cluster.Event) int { return a.Received.Compare(b.Received) })
	lost := tenures{}
	for _, e := range events {
		accepted := e.Response.Code < 300
		switch {
		case !slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, e.Verb):
		case e.Object.Resource == "leases" && accepted:
			lost.note(e)
		case e.Object.Resource != "configmaps" || !slices.Contains(ours, e.User.Username):
		case !accepted && len(e.Sent) == 0: // the API server refused it before it had read it
		default:
			version := stateOf(e)
			for _, problem := range []string{judgeState(e, version, stored), lost.judge(e)} {
				if problem != "" {
					problems = append(problems, fmt.Errorf("%s %v: %s", e.Received.Format("15:04:05.000"), e, problem))
				}
			}
		}
	}
	return problems
}

// stateOf returns the resourceVersion that an update, a JSON patch or a deletion depends on; empty if there is none.
func stateOf(e cluster.Event) string {
	var operations []struct {
		Op, Path string
		Value    any
	}
	_ = json.Unmarshal(e.Sent, &operations) // of a patch
	for _, o := range operations {
		if o.Op == "replace" && o.Path == "/metadata/resourceVersion" { // a conflict where it is another one
			return fmt.Sprint(o.Value)
		}
	}
	var sent struct {
		Metadata      struct{ ResourceVersion string } // of an update
		Preconditions struct{ UID, ResourceVersion string }
	}
	_ = json.Unmarshal(e.Sent, &sent) // of a request without a body nothing is read
	if e.Verb == "delete" && sent.Preconditions.UID != "" {
		return sent.Preconditions.ResourceVersion
	}
	return sent.Metadata.ResourceVersion
}

// judgeState finds a write that depends on no state of a copy of ours. A create is refused if there is any object.
func judgeState(e cluster.Event, version string, stored storedAt) string {
	if e.Verb == "create" {
		return ""
	}
	if version == "" {
		return "it names no state"
	}
	cm, err := stored(key{Namespace: e.Object.Namespace, Name: e.Object.Name}, version)
	if err != nil {
		return err.Error()
	}
	if !isOurs(cm) {
		return fmt.Sprintf("it depends on no copy of ours: labels %v, annotations %v", cm.Labels, cm.Annotations)
	}
	return ""
}

// isOurs reads the contract on its own: a mistake in package plan is none here.
func isOurs(cm *corev1.ConfigMap) bool {
	const domain = "mirror-controller.github.io/"
	namespace, name, _ := strings.Cut(cm.Annotations[domain+"source"], "/")
	return cm.Annotations[domain+"copy"] == cm.Namespace+"/"+cm.Name && cm.Annotations[domain+"instance"] == "default" &&
		name == cm.Name && namespace != "" && namespace != cm.Namespace
}

// tenures has when each user that ever had the Lease lost it; zero: the user has it.
type tenures map[string]time.Time

// note reads an accepted write of the Lease: it has the last user to write it, except to give it back.
func (t tenures) note(e cluster.Event) {
	var lease coordinationv1.Lease
	_ = json.Unmarshal(e.Sent, &lease) // the API server has accepted it
	held := lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != ""
	for user, lost := range t {
		if lost.IsZero() {
			t[user] = e.Done
		}
	}
	if held {
		t[e.User.Username] = time.Time{}
	}
}

// judge finds a write whose sender does not have the Lease. It may have been on its way when its sender lost that.
func (t tenures) judge(e cluster.Event) string {
	lost, ever := t[e.User.Username]
	if !ever {
		return "its sender never had the lease"
	}
	if after := e.Received.Sub(lost); !lost.IsZero() && after > late {
		return fmt.Sprintf("its sender had lost the lease %s ago", after)
	}
	return ""
}

// stored asks etcd for a state: a watch of an API server misses some while that is away.
func (s *storm) stored(at key, version string) (*corev1.ConfigMap, error) {
	content, err := s.cluster.Stored(s.Context(), "/registry/configmaps/"+at.String(), version)
	if err != nil {
		return nil, err
	}
	cm := &corev1.ConfigMap{}
	_, _, err = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Decode(content, nil, cm)
	return cm, err
}

// TestOneProcessHoldsTheLease: only a write that its sender may have sent while it had the Lease is no finding.
func TestOneProcessHoldsTheLease(t *testing.T) {
	const none = ""
	lease := func(at time.Duration, user, holder string) cluster.Event {
		body, _ := json.Marshal(coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}})
		return request(at, user, "update", "leases", string(body))
	}
	write := func(at time.Duration, user string) cluster.Event {
		return request(at, user, "create", "configmaps", "{}")
	}
	noState := func(key, string) (*corev1.ConfigMap, error) { return &corev1.ConfigMap{}, nil }
	type log []cluster.Event
	for name, tc := range map[string]struct {
		events log
		want   string
	}{
		"it leads":               {log{lease(1, "a", "a"), lease(2, "a", "a"), write(time.Hour, "a")}, none},
		"it took over":           {log{lease(1, "a", "a"), lease(2, "b", "b"), write(3, "b")}, none},
		"it stands by":           {log{lease(1, "a", "a"), write(2, "b")}, "never had the lease"},
		"it is not yet the time": {log{lease(2, "a", "a"), write(1, "a")}, "never had the lease"},
		"it was on the way":      {log{lease(1, "a", "a"), lease(2, "b", "b"), write(late, "a")}, none},
		"it was overtaken":       {log{lease(1, "a", "a"), lease(2, "b", "b"), write(3+late, "a")}, "had lost the lease"},
		"it gave the lease back": {log{lease(1, "a", "a"), lease(2, "a", none), write(3+late, "a")}, "had lost the lease"},
		"it has the lease again": {
			log{lease(1, "a", "a"), lease(2, "b", "b"), lease(3, "a", "a"), write(4+late, "a")}, none,
		},
		"somebody else's request": {log{write(1, "user")}, none},
	} {
		t.Run(name, func(t *testing.T) {
			got := judge(tc.events, []string{"a", "b"}, noState)
			if tc.want == none && len(got) > 0 || !strings.Contains(fmt.Sprint(got), tc.want) {
				t.Errorf("got %v, want %q", got, tc.want)
			}
		})
	}
}

// TestStateOf: each kind of write names the state on which it depends, or does not.
func TestStateOf(t *testing.T) {
	for body, want := range map[string]string{
		`{"metadata": {"resourceVersion": "7"}}`:                                 "7",
		`{"preconditions": {"uid": "a", "resourceVersion": "7"}}`:                "7",
		`{"preconditions": {"resourceVersion": "7"}}`:                            "",
		`[{"op": "replace", "path": "/metadata/resourceVersion", "value": "7"}]`: "7",
		`[{"op": "add", "path": "/data", "value": {"resourceVersion": "7"}}]`:    "",
		`[{"op": "remove", "path": "/metadata/resourceVersion"}]`:                "",
		`[{"op": "replace", "path": "/data/key", "value": "7"}]`:                 "",
		``: "",
	} {
		verb := "update"
		if strings.Contains(body, "preconditions") {
			verb = "delete"
		}
		if got := stateOf(cluster.Event{Verb: verb, Sent: []byte(body)}); got != want {
			t.Errorf("%s: got state %q, want %q", body, got, want)
		}
	}
}

func request(at time.Duration, user, verb, resource, body string) cluster.Event {
	e := cluster.Event{Verb: verb, Received: time.Unix(0, 0).Add(at), Done: time.Unix(0, 0).Add(at), Sent: []byte(body)}
	e.User.Username, e.Object.Resource, e.Response.Code = user, resource, 200
	return e
}
