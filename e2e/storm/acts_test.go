package storm

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// The places where things happen. There are so few of them that what happens meets what happened before.
var (
	homes   = []string{"home", "shared"} // no targets
	targets = []string{"team-a", "team-b", "team-c", "dev-x", "dev-y"}
	names   = []string{"settings", "ca", "proxy", "banner"}
)

// How much happens in a round.
const (
	stormActs    = 100
	calmActs     = 25
	longestGrace = 3 * time.Second
)

// round is what happens in a round.
type round struct {
	first, storm, calm []act
	begin, resume      plan.Options
	grace              time.Duration
}

// act is one thing that happens: all that is random about it was drawn before.
type act struct {
	after time.Duration // the act before
	text  string        // for people
	fault bool          // it ends with ctx
	alone bool          // the next act waits for its end
	do    func(ctx context.Context, s *storm) error
}

// draw draws a round.
func draw(seed uint64) round {
	d := drawer{rand.New(rand.NewPCG(seed, 0))}
	selector, wide := drawOne(d, "", "tier!=bronze"), []string{"team-", "dev-"}
	r := round{
		begin:  options(selector, drawOne(d, true, false), wide...),
		resume: options(selector, drawOne(d, true, false), drawOne(d, wide, []string{"team-"}, []string{"dev-x"})...),
		grace:  drawOne(d, 0, time.Second, longestGrace),
	}
	for _, name := range names {
		r.first = append(r.first, put("home/configmaps/"+name, asSource, false, d.IntN(1000)))
	}
	for range stormActs {
		next := d.fault
		if d.IntN(5) > 0 {
			next = d.operation
		}
		a := next()
		a.after = drawOne(d, 0, d.between(0, 100*time.Millisecond), d.between(0, time.Second))
		r.storm = append(r.storm, a)
	}
	for range calmActs {
		r.calm = append(r.calm, d.operation())
	}
	return r
}

// options are the flags of the controllers that decide what is mirrored where.
func options(selector string, prune bool, prefixes ...string) plan.Options {
	o := plan.NewOptions()
	o.NamespacePrefixes, o.NamespaceSelector, o.Prune = prefixes, selector, prune
	return o
}

// drawer draws from a seed what is to happen.
type drawer struct{ *rand.Rand }

func drawOne[T any](d drawer, list ...T) T { return list[d.IntN(len(list))] }

// between draws a time.
func (d drawer) between(from, to time.Duration) time.Duration {
	return (from + time.Duration(d.Int64N(int64(to-from)))).Round(time.Millisecond)
}

// operation draws what a user does.
func (d drawer) operation() act {
	name, namespace, n := drawOne(d, names...), drawOne(d, targets...), d.IntN(1000)
	source := drawOne(d, "home", "home", "home", "shared", "team-a") + "/configmaps/" + name
	target := namespace + "/configmaps/" + name
	data := drawOne(d, "", fmt.Sprintf(`, "data": {"key": "%d"}`, n))
	publish, editSource := put(source, asSource, d.IntN(10) == 0, n), edit(source, drawOne(d, ofSources...), data)
	editCopy, label := edit(target, drawOne(d, ofCopies...), data), edit(namespace, drawOne(d, ofNamespaces...), "")
	return drawOne(d,
		publish, publish, remove(source), editSource, editSource, editSource, editCopy, editCopy,
		drawOne(d, remove(target), put(target, "", false, n)), drawOne(d, label, recreateNamespace(namespace)),
	)
}

const (
	domain   = "mirror-controller.github.io/"
	asSource = `"mirror": "true"`
)

// What users change in metadata. null removes.
var (
	ofSources = []string{
		`"labels": {"mirror": null}`,
		`"annotations": {"` + domain + `namespace-prefix": "team-"}`,
		`"annotations": {"` + domain + `namespace-prefix": "team-a,dev-"}`,
		`"annotations": {"` + domain + `namespace-prefix": "*"}`, // freezes it
		`"annotations": {"` + domain + `namespace-prefix": null}`,
		`"annotations": {"` + domain + `paused": "true"}`,
		`"annotations": {"` + domain + `rollout": "tier=bronze"}`,
		`"annotations": {"` + domain + `paused": null, "` + domain + `rollout": null}`,
	}
	ofCopies = []string{
		``,
		`"labels": {"team": "red"}`,
		`"labels": {"team": null}`,
		`"labels": {"mirror": null}`,
		`"annotations": {"` + domain + `source": null}`, // releases it
	}
	ofNamespaces = []string{
		`"labels": {"mirror": "false"}`, `"labels": {"mirror": null}`,
		`"labels": {"tier": "bronze"}`, `"labels": {"tier": null}`,
	}
)

// put creates a ConfigMap, or changes the one that is there.
func put(at, labels string, immutable bool, n int) act {
	body := fmt.Sprintf(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": %q, "labels": {%s}}, `+
		`"immutable": %v, "data": {"key": "%d", "key-%d": ""}}`, path.Base(at), labels, immutable, n, n%3)
	return send(http.MethodPatch, at+"?fieldManager=user&force=true", types.ApplyPatchType, body)
}

// edit changes an object that is there.
func edit(at, metadata, more string) act {
	return send(http.MethodPatch, at, types.MergePatchType, fmt.Sprintf(`{"metadata": {%s}%s}`, metadata, more))
}

func remove(at string) act { return send(http.MethodDelete, at, "", "") }

// send sends a request about a namespace, or about what lies in one.
func send(method, at string, how types.PatchType, body string) act {
	return act{text: fmt.Sprintf("%s %s %s", method, at, body), do: func(ctx context.Context, s *storm) error {
		return s.users.CoreV1().RESTClient().Verb(method).RequestURI("/api/v1/namespaces/"+at).
			SetHeader("Content-Type", string(how)).Body([]byte(body)).Do(ctx).Error()
	}}
}

// recreateNamespace deletes a namespace and creates it as soon as it is gone.
func recreateNamespace(name string) act {
	return act{text: "recreate namespace " + name, do: func(ctx context.Context, s *storm) error {
		if err := s.users.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return err
		}
		return cluster.Until(ctx, patience, func() error {
			ns, err := s.users.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return cluster.CreateNamespaces(ctx, s.users, name)
			}
			if err == nil && plan.Terminating(ns) {
				return fmt.Errorf("%s is still there", name)
			}
			return err
		})
	}}
}
