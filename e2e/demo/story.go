package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/outside"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
)

const (
	// patience is how long a step may take before it counts as not happened. It takes milliseconds.
	patience = 10 * time.Minute
	// teams is how many target namespaces the story begins with.
	teams = 36
	// prefix is that of the Deployment.
	prefix = "team-"
	home   = "platform"
	name   = "settings"
	// tenantName is the user who may write ConfigMaps in two targets, and publish nothing.
	tenantName = "tenant"
	// tier and stage are the label of the canary.
	tier, stage = "tier", "canary"
)

// story is the demo: its steps, their effects and their times.
type story struct {
	client     kubernetes.Interface
	tenant     kubernetes.Interface
	seen       *outside.Observer
	controller *shipped.Process
	out        io.Writer
	targets    []string
	mine       *corev1.ConfigMap // somebody else's ConfigMap, in the way
	step       int
}

// play plays the steps, and stops at the first that does not happen.
func (s *story) play(ctx context.Context) error {
	if err := s.prepare(ctx); err != nil {
		return err
	}
	for _, act := range []func(context.Context) error{
		s.refuse, s.create, s.restore, s.canary, s.goOn, s.newNamespace, s.foreign, s.deleteSource,
	} {
		if err := act(ctx); err != nil {
			return fmt.Errorf("step %d did not happen: %w", s.step, err)
		}
	}
	return nil
}

// prepare creates the namespaces, in one of them a ConfigMap that is not ours, and lets a tenant write ConfigMaps in
// two targets. It waits until the API server knows this and the policies.
func (s *story) prepare(ctx context.Context) error {
	for i := range teams {
		s.targets = append(s.targets, fmt.Sprintf("%s%02d", prefix, i+1))
	}
	taken := prefix + "taken"
	if err := cluster.CreateNamespaces(ctx, s.client, append([]string{home, taken, "other"}, s.targets...)...); err != nil {
		return err
	}
	canary := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, tier, stage)
	_, err := s.client.CoreV1().Namespaces().Patch(ctx, s.targets[0], types.MergePatchType, []byte(canary),
		metav1.PatchOptions{})
	if err != nil {
		return err
	}
	mine := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"colour": "mine"}}
	if s.mine, err = s.client.CoreV1().ConfigMaps(taken).Create(ctx, mine, metav1.CreateOptions{}); err != nil {
		return err
	}
	fmt.Fprintf(s.out, "Namespaces: %s, other, %s to %s, and %s, which already has a ConfigMap %s.\n",
		home, s.targets[0], s.targets[teams-1], taken, name)
	for _, ns := range s.targets[:2] {
		// The role edit gets its rules from this one by a controller that does not run here.
		if err := admit(ctx, s.client, tenantName, ns, "system:aggregate-to-edit"); err != nil {
			return err
		}
	}
	return cluster.Until(ctx, patience, func() error { return s.refused(ctx, metav1.DryRunAll) })
}

// refused returns nil if the policy for publishers refuses the tenant a source in the first target.
func (s *story) refused(ctx context.Context, dryRun ...string) error {
	source := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "ours", Labels: map[string]string{"mirror": "true"}}}
	_, err := s.tenant.CoreV1().ConfigMaps(s.targets[0]).Create(ctx, source, metav1.CreateOptions{DryRun: dryRun})
	if apierrors.IsForbidden(err) && strings.Contains(err.Error(), `needs the verb "mirror"`) {
		return nil
	}
	return fmt.Errorf("the answer is %w", err)
}

func (s *story) refuse(ctx context.Context) error {
	return s.act(ctx, "A tenant of "+s.targets[0]+" creates a ConfigMap with the label mirror=true",
		`it is refused: publishing needs the verb "mirror"`,
		func() error { return s.refused(ctx) },
		func() error { return nil })
}

func (s *story) create(ctx context.Context) error {
	source := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	paint("blue")(source)
	if _, err := s.client.CoreV1().ConfigMaps(home).Create(ctx, source, metav1.CreateOptions{}); err != nil {
		return err
	}
	return s.act(ctx, fmt.Sprintf("kubectl -n %s label configmap %s mirror=true", home, name),
		fmt.Sprintf("%d namespaces have a copy", teams),
		func() error {
			return s.change(ctx, s.client, home, func(cm *corev1.ConfigMap) { cm.Labels = map[string]string{"mirror": "true"} })
		},
		func() error { return s.colour("blue", s.targets...) })
}

func (s *story) restore(ctx context.Context) error {
	edited, deleted := s.targets[0], s.targets[1]
	before := s.seen.ConfigMap(deleted, name).UID
	return s.act(ctx, fmt.Sprintf("The tenant changes the copy in %s to red, and deletes that in %s", edited, deleted),
		"both are restored",
		func() error {
			if err := s.change(ctx, s.tenant, edited, paint("red")); err != nil {
				return err
			}
			return s.tenant.CoreV1().ConfigMaps(deleted).Delete(ctx, name, metav1.DeleteOptions{})
		},
		func() error {
			if cm := s.seen.ConfigMap(deleted, name); cm != nil && cm.UID == before {
				return errors.New("it is not deleted yet")
			}
			return s.colour("blue", s.targets...)
		})
}

// canary changes the source in a stage: the annotation comes with the change, as one commit in Git would bring both.
func (s *story) canary(ctx context.Context) error {
	return s.act(ctx, fmt.Sprintf("The source changes to green, with the annotation rollout=%s=%s", tier, stage),
		fmt.Sprintf("only the canary %s is green; an event says that the others are held", s.targets[0]),
		func() error {
			return s.change(ctx, s.client, home, func(cm *corev1.ConfigMap) {
				cm.Annotations = map[string]string{"mirror-controller.github.io/rollout": tier + "=" + stage}
				paint("green")(cm)
			})
		},
		func() error {
			return errors.Join(s.event("Held", tier+"="+stage),
				s.colour("green", s.targets[:1]...), s.colour("blue", s.targets[1:]...))
		})
}

func (s *story) goOn(ctx context.Context) error {
	return s.act(ctx, "The annotation is removed", fmt.Sprintf("all %d copies are green", teams),
		func() error {
			return s.change(ctx, s.client, home, func(cm *corev1.ConfigMap) { cm.Annotations = nil })
		},
		func() error { return s.colour("green", s.targets...) })
}

func (s *story) newNamespace(ctx context.Context) error {
	ns := prefix + "new"
	s.targets = append(s.targets, ns)
	return s.act(ctx, "kubectl create namespace "+ns, "it has its copy",
		func() error { return cluster.CreateNamespaces(ctx, s.client, ns) },
		func() error { return s.colour("green", s.targets...) })
}

// foreign shows that what is not ours was left alone by all that went before.
func (s *story) foreign(ctx context.Context) error {
	at := s.mine.Namespace
	return s.act(ctx, fmt.Sprintf("The ConfigMap that %s had before, and the namespace other", at),
		"both are untouched; an event on the source reports the first",
		func() error { return nil },
		func() error {
			now, err := s.client.CoreV1().ConfigMaps(at).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if now.UID != s.mine.UID || now.ResourceVersion != s.mine.ResourceVersion {
				return fmt.Errorf("the ConfigMap in %s was touched", at)
			}
			if s.seen.ConfigMap("other", name) != nil {
				return errors.New("there is a copy in the namespace other")
			}
			return s.event("Foreign", at)
		})
}

func (s *story) deleteSource(ctx context.Context) error {
	return s.act(ctx, "The source is deleted",
		fmt.Sprintf("all %d copies are deleted, after a second in which the source could return", len(s.targets)),
		func() error { return s.client.CoreV1().ConfigMaps(home).Delete(ctx, name, metav1.DeleteOptions{}) },
		func() error {
			for _, ns := range s.targets {
				if s.seen.ConfigMap(ns, name) != nil {
					return fmt.Errorf("there is a copy in %s", ns)
				}
			}
			return nil
		})
}

// stop ends the controller as Kubernetes would.
func (s *story) stop() error {
	start := time.Now()
	if err := s.controller.Stop(stopPatience); err != nil {
		return fmt.Errorf("stop the controller: %w", err)
	}
	fmt.Fprintf(s.out, "\nThe controller was asked to stop, and ended with exit code 0 (%s).\n", since(start))
	return nil
}

// act does one step, waits for what has to follow, and says both.
func (s *story) act(ctx context.Context, done, happened string, do, check func() error) error {
	s.step++
	fmt.Fprintf(s.out, "\n%d. %s\n", s.step, done)
	start := time.Now()
	if err := do(); err != nil {
		return err
	}
	if err := cluster.Until(ctx, patience, check); err != nil {
		return err
	}
	fmt.Fprintf(s.out, "   -> %s (%s)\n", happened, since(start))
	return nil
}

// event returns nil if there is an event on the source with a text in it.
func (s *story) event(reason, text string) error {
	for _, e := range s.seen.EventsOn(home, name) {
		if e.Reason == reason && strings.Contains(e.Message, text) {
			return nil
		}
	}
	return fmt.Errorf("no event %s on the source", reason)
}

// colour returns nil if each of these namespaces has a copy of that colour.
func (s *story) colour(colour string, namespaces ...string) error {
	for _, ns := range namespaces {
		cm := s.seen.ConfigMap(ns, name)
		if cm == nil {
			return fmt.Errorf("no copy in %s", ns)
		}
		if !maps.Equal(cm.Data, map[string]string{"colour": colour}) {
			return fmt.Errorf("the copy in %s is %v", ns, cm.Data)
		}
	}
	return nil
}

// paint returns a change of the data to that colour.
func paint(colour string) func(*corev1.ConfigMap) {
	return func(cm *corev1.ConfigMap) { cm.Data = map[string]string{"colour": colour} }
}

// change changes the ConfigMap of a namespace, and waits until the watch shows it: else the state before the change
// would pass for the state after the repair.
func (s *story) change(ctx context.Context, as kubernetes.Interface, ns string, edit func(*corev1.ConfigMap)) error {
	var changed *corev1.ConfigMap
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		cm, err := s.client.CoreV1().ConfigMaps(ns).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		edit(cm)
		changed, err = as.CoreV1().ConfigMaps(ns).Update(ctx, cm, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	return cluster.Until(ctx, patience, func() error {
		if !s.seen.HasSeen(changed) {
			return errors.New("the watch has not shown the change")
		}
		return nil
	})
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
