package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
)

const (
	// patience is how long a step may take before it counts as not happened. It takes milliseconds.
	patience = 10 * time.Minute
	// home is the namespace of the source, and taken a target that has a ConfigMap of its name already.
	home, taken, name = "platform", "team-taken", "settings"
	// tenant is the user who may write ConfigMaps in two targets, and publish nothing.
	tenant = "tenant"
)

// story is the demo: its steps, their effects and their times.
type story struct {
	client, tenant kubernetes.Interface
	out            io.Writer
	mine           *corev1.ConfigMap // somebody else's ConfigMap, in the way
}

// step is something that somebody does, and what has to follow.
type step struct {
	done, happened string
	do             func(context.Context) error
	colour         string   // of the copies that change; none: they are deleted
	changed        []string // their namespaces
	reason, text   string   // of an event on the source
}

// steps are the steps of the story with these targets.
func (s *story) steps(targets []string) []step {
	source := s.client.CoreV1().ConfigMaps(home)
	patch := func(patch string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := source.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			return err
		}
	}
	return []step{{
		done:     "A tenant of team-01 creates a ConfigMap with the label mirror=true",
		happened: `it is refused: publishing needs the verb "mirror"`,
		do:       func(ctx context.Context) error { return s.refused(ctx) },
	}, {
		done:     "kubectl -n platform label configmap settings mirror=true",
		happened: "36 namespaces have a copy",
		do:       patch(`{"metadata":{"labels":{"mirror":"true"}}}`),
		colour:   "blue", changed: targets,
	}, {
		done:     "The tenant changes the copy in team-01 to red, and deletes that in team-02",
		happened: "both are restored",
		do: func(ctx context.Context) error {
			_, err := s.tenant.CoreV1().ConfigMaps("team-01").Patch(ctx, name, types.MergePatchType,
				[]byte(`{"data":{"colour":"red"}}`), metav1.PatchOptions{})
			return errors.Join(err, s.tenant.CoreV1().ConfigMaps("team-02").Delete(ctx, name, metav1.DeleteOptions{}))
		},
	}, {
		// The annotation comes with the change, as one commit in Git would bring both.
		done:     "The source changes to green, with the annotation rollout=tier=canary",
		happened: "only the canary team-01 is green; an event says that the others are held",
		do: patch(`{"data":{"colour":"green"},
			"metadata":{"annotations":{"mirror-controller.github.io/rollout":"tier=canary"}}}`),
		colour: "green", changed: targets[:1],
		reason: "Held", text: "tier=canary",
	}, {
		done:     "The annotation is removed",
		happened: "all 36 copies are green",
		do:       patch(`{"metadata":{"annotations":null}}`),
		colour:   "green", changed: targets,
	}, {
		done:     "kubectl create namespace team-new",
		happened: "it has its copy",
		do:       func(ctx context.Context) error { return cluster.CreateNamespaces(ctx, s.client, "team-new") },
		colour:   "green", changed: []string{"team-new"},
	}, {
		done:     "The ConfigMap that team-taken had before, and the namespace other",
		happened: "both are untouched; an event on the source reports the first",
		do:       s.untouched,
		reason:   "Foreign", text: taken,
	}, {
		done:     "The source is deleted",
		happened: "all 37 copies are deleted, after a second in which the source could return",
		do:       func(ctx context.Context) error { return source.Delete(ctx, name, metav1.DeleteOptions{}) },
		changed:  append(slices.Clone(targets), "team-new"),
	}}
}

// play plays the steps, and stops at the first that does not happen.
func (s *story) play(ctx context.Context) error {
	var targets []string
	for i := range 36 {
		targets = append(targets, fmt.Sprintf("team-%02d", i+1))
	}
	if err := s.prepare(ctx, targets); err != nil {
		return err
	}
	colours := map[string]string{taken: "mine"}
	for i, step := range s.steps(targets) {
		fmt.Fprintf(s.out, "\n%d. %s\n", i+1, step.done)
		start := time.Now()
		for _, ns := range step.changed {
			colours[ns] = step.colour
		}
		maps.DeleteFunc(colours, func(_, colour string) bool { return colour == "" })
		err := step.do(ctx)
		if err == nil {
			err = cluster.Until(ctx, patience, func() error {
				return errors.Join(s.shows(ctx, colours), s.reports(ctx, step.reason, step.text))
			})
		}
		if err != nil {
			return fmt.Errorf("step %d did not happen: %w", i+1, err)
		}
		fmt.Fprintf(s.out, "   -> %s (%s)\n", step.happened, since(start))
	}
	return nil
}

// prepare creates the namespaces, in one of them a ConfigMap that is not ours, and lets a tenant write ConfigMaps in
// two targets. It waits until the API server knows this and the policies.
func (s *story) prepare(ctx context.Context, targets []string) error {
	if err := cluster.CreateNamespaces(ctx, s.client, append([]string{home, taken, "other"}, targets...)...); err != nil {
		return err
	}
	_, err := s.client.CoreV1().Namespaces().Patch(ctx, targets[0], types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"tier":"canary"}}}`), metav1.PatchOptions{})
	if err != nil {
		return err
	}
	create := func(ns, colour string) (*corev1.ConfigMap, error) {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"colour": colour}}
		return s.client.CoreV1().ConfigMaps(ns).Create(ctx, cm, metav1.CreateOptions{})
	}
	if _, err := create(home, "blue"); err != nil {
		return err
	}
	if s.mine, err = create(taken, "mine"); err != nil {
		return err
	}
	fmt.Fprintf(s.out, "Namespaces: %s, other, %s to %s, and %s, which already has a ConfigMap %s.\n",
		home, targets[0], targets[len(targets)-1], taken, name)
	for _, ns := range targets[:2] {
		// The role edit gets its rules from this one by a controller that does not run here.
		if err := admit(ctx, s.client, tenant, ns, "system:aggregate-to-edit"); err != nil {
			return err
		}
	}
	return cluster.Until(ctx, patience, func() error { return s.refused(ctx, metav1.DryRunAll) })
}

// refused returns nil if the policy for publishers refuses the tenant a source in a target.
func (s *story) refused(ctx context.Context, dryRun ...string) error {
	source := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "ours", Labels: map[string]string{"mirror": "true"}}}
	_, err := s.tenant.CoreV1().ConfigMaps("team-01").Create(ctx, source, metav1.CreateOptions{DryRun: dryRun})
	if apierrors.IsForbidden(err) && strings.Contains(err.Error(), `needs the verb "mirror"`) {
		return nil
	}
	return fmt.Errorf("the answer is %w", err)
}

// untouched returns nil if nobody has written to what is not ours.
func (s *story) untouched(ctx context.Context) error {
	now, err := s.client.CoreV1().ConfigMaps(taken).Get(ctx, name, metav1.GetOptions{})
	if err == nil && now.ResourceVersion != s.mine.ResourceVersion {
		err = fmt.Errorf("the ConfigMap in %s was touched", taken)
	}
	return err
}

// shows returns nil if there are, besides the source, ConfigMaps of its name with these colours in these namespaces,
// and in no other.
func (s *story) shows(ctx context.Context, colours map[string]string) error {
	found, err := s.client.CoreV1().ConfigMaps(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: "metadata.name=" + name + ",metadata.namespace!=" + home,
	})
	if err != nil {
		return err
	}
	got := map[string]string{}
	for _, cm := range found.Items {
		got[cm.Namespace] = cm.Data["colour"]
	}
	if !maps.Equal(got, colours) {
		return fmt.Errorf("the colours are %v, want %v", got, colours)
	}
	return nil
}

// reports returns nil if there is an event on the source with a text in it, or none is asked for.
func (s *story) reports(ctx context.Context, reason, text string) error {
	if reason == "" {
		return nil
	}
	events, err := s.client.CoreV1().Events(home).List(ctx, metav1.ListOptions{
		FieldSelector: "involvedObject.name=" + name + ",reason=" + reason,
	})
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(events.Items, func(e corev1.Event) bool { return strings.Contains(e.Message, text) }) {
		return fmt.Errorf("no event %s on the source", reason)
	}
	return nil
}

// admit gives a user roles in a namespace.
func admit(ctx context.Context, client kubernetes.Interface, user, ns string, roles ...string) error {
	for _, role := range roles {
		binding := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: user + "-" + role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		}
		if _, err := client.RbacV1().RoleBindings(ns).Create(ctx, binding, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}
