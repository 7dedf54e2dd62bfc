package storm

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
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
	storm, calm   []act
	begin, resume plan.Options
	grace         time.Duration
}

// act is one thing that happens: all that is random about it was drawn before.
type act struct {
	after time.Duration // the act before
	text  string        // for people
	fault bool
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
		r.storm = append(r.storm, put("put source", key{Namespace: homes[0], Name: name}, asSource, d.content()))
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

func (d drawer) source() key {
	return key{Namespace: drawOne(d, "home", "home", "home", "shared", "team-a"), Name: drawOne(d, names...)}
}

func (d drawer) target() key {
	return key{Namespace: drawOne(d, targets...), Name: drawOne(d, names...)}
}

func (d drawer) content() object { return content(d.IntN(1000)) }

// chance is one of several things that are drawn, each as often as it says.
type chance[T any] struct {
	times int
	draw  func(d drawer) T
}

func pick[T any](d drawer, chances []chance[T]) T {
	var all []chance[T]
	for _, c := range chances {
		all = append(all, slices.Repeat([]chance[T]{c}, c.times)...)
	}
	return drawOne(d, all...).draw(d)
}

// operation draws what a user does.
func (d drawer) operation() act { return pick(d, operations) }

var operations = []chance[act]{
	{4, func(d drawer) act { return put("put source", d.source(), asSource, d.content()) }},
	{1, func(d drawer) act {
		return put("put immutable source", d.source(), asSource, d.content(), object{"immutable": true})
	}},
	{3, func(d drawer) act { return remove(d.source()) }},
	{1, func(d drawer) act { return patch("unlabel", d.source(), labels(object{"mirror": nil})) }},
	{1, func(d drawer) act {
		return patch("narrow", d.source(), prefixes(drawOne(d, "team-", "team-a,dev-", "dev-x")))
	}},
	{1, func(d drawer) act { return patch("freeze", d.source(), prefixes("*")) }},
	{1, func(d drawer) act { return patch("widen", d.source(), prefixes(nil)) }},
	{1, func(d drawer) act {
		paused := annotations(object{plan.PausedAnnotation: drawOne(d, "true", "true", "yes")})
		return patch("hold", d.source(), paused, d.content())
	}},
	{1, func(d drawer) act {
		return patch("roll out", d.source(), annotations(object{plan.RolloutAnnotation: "tier=bronze"}), d.content())
	}},
	{1, func(d drawer) act {
		held := object{plan.PausedAnnotation: nil, plan.RolloutAnnotation: nil}
		return patch("end the hold of", d.source(), annotations(held))
	}},
	{2, func(d drawer) act { return patch("edit", d.target(), d.content()) }},
	{2, func(d drawer) act {
		return patch("decorate", d.target(), labels(object{"team": drawOne[any](d, "red", nil)}), d.content())
	}},
	{1, func(d drawer) act { return remove(d.target()) }},
	{1, func(d drawer) act { return patch("strip label of", d.target(), labels(object{"mirror": nil})) }},
	{1, func(d drawer) act {
		return patch("release", d.target(), annotations(object{plan.SourceAnnotation: nil}))
	}},
	{1, func(d drawer) act { return put("put foreign", d.target(), d.content()) }},
	{1, func(d drawer) act {
		set := drawOne(d, object{"mirror": "false"}, object{"mirror": nil}, object{"tier": "bronze"}, object{"tier": nil})
		return labelNamespace(drawOne(d, targets...), set)
	}},
	{1, func(d drawer) act { return recreateNamespace(drawOne(d, targets...)) }},
}

// object is a part of an object in JSON; null in a patch removes a field.
type object map[string]any

// add adds another part.
func (o object) add(part object) {
	for k, v := range part {
		inner, ok := v.(object)
		if !ok {
			o[k] = v
			continue
		}
		if o[k] == nil {
			o[k] = object{}
		}
		o[k].(object).add(inner)
	}
}

var asSource = labels(object{"mirror": "true"})

func labels(set object) object      { return object{"metadata": object{"labels": set}} }
func annotations(set object) object { return object{"metadata": object{"annotations": set}} }

// prefixes has a source narrow its targets; nil: it does not.
func prefixes(list any) object { return annotations(object{plan.PrefixAnnotation: list}) }

func content(n int) object {
	return object{
		"data":       object{"key": fmt.Sprint(n), fmt.Sprintf("key-%d", n%3): strings.Repeat("x", n%700)},
		"binaryData": object{"bytes": []byte{byte(n), 0xff}},
	}
}

// put creates a ConfigMap of these parts, or changes the one that is there.
func put(what string, at key, parts ...object) act {
	force := true
	parts = append(parts, object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": at.Name}})
	return sendPatch(what, at, types.ApplyPatchType, metav1.PatchOptions{FieldManager: "user", Force: &force}, parts)
}

// patch changes the ConfigMap that is there.
func patch(what string, at key, parts ...object) act {
	return sendPatch(what, at, types.MergePatchType, metav1.PatchOptions{}, parts)
}

func sendPatch(what string, at key, how types.PatchType, o metav1.PatchOptions, parts []object) act {
	body := object{}
	for _, part := range parts {
		body.add(part)
	}
	text := fmt.Sprintf("%s %v %v", what, at, body["metadata"])
	return act{text: text, do: func(ctx context.Context, s *storm) error {
		_, err := s.users.CoreV1().ConfigMaps(at.Namespace).Patch(ctx, at.Name, how, asJSON(body), o)
		return err
	}}
}

func asJSON(o object) []byte {
	text, _ := json.Marshal(o) // strings, numbers and bytes can be
	return text
}

func remove(at key) act {
	return act{text: fmt.Sprintf("delete %v", at), do: func(ctx context.Context, s *storm) error {
		return s.users.CoreV1().ConfigMaps(at.Namespace).Delete(ctx, at.Name, metav1.DeleteOptions{})
	}}
}

func labelNamespace(name string, set object) act {
	return act{text: fmt.Sprintf("label namespace %s: %v", name, set), do: func(ctx context.Context, s *storm) error {
		body := asJSON(labels(set))
		_, err := s.users.CoreV1().Namespaces().Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{})
		return err
	}}
}

// recreateNamespace deletes a namespace and creates it as soon as it is gone.
func recreateNamespace(name string) act {
	return act{text: "recreate namespace " + name, do: func(ctx context.Context, s *storm) error {
		if err := s.users.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return err
		}
		return s.eventually(func() error {
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

// clear deletes all that the round before left, while no controller runs.
func (s *storm) clear(ctx context.Context) error {
	namespaces := slices.Concat(homes, targets)
	if err := cluster.CreateNamespaces(ctx, s.users, namespaces...); err != nil {
		return err
	}
	for _, name := range namespaces {
		if err := labelNamespace(name, object{"mirror": nil, "tier": nil}).do(ctx, s); err != nil {
			return err
		}
		err := s.users.CoreV1().ConfigMaps(name).DeleteCollection(ctx, metav1.DeleteOptions{},
			metav1.ListOptions{FieldSelector: "metadata.name!=kube-root-ca.crt"})
		if err != nil {
			return err
		}
	}
	return nil
}
