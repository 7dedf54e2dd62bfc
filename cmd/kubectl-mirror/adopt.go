package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const adoptHelp = `Hand a foreign ConfigMap, whose name a copy needs, over to the controller: it becomes the copy. That REPLACES ITS
DATA, and deletes and re-creates it if it is immutable. The command shows which keys that concerns, asks, sets the annotation
` + plan.AdoptAnnotation + `=` + plan.AdoptValue + ` and the label by which the controller notices it at once, and waits for the result.

ConfigMap data is shown with --diff only.

Permissions: list ConfigMaps and namespaces; get ConfigMaps in the namespaces of the source and of the target; patch ConfigMaps
in that of the target. To find the controller: list ClusterRoleBindings or Deployments.

Exit codes: 0 it is a copy now, 1 refused, not confirmed or timed out, 2 error.`

func newAdopt(c *cli) *cobra.Command {
	var output outputFlag
	var confirm confirmation
	var timeout time.Duration
	var diff bool
	cmd := &cobra.Command{
		Use:               "adopt NAMESPACE/NAME",
		Short:             "Turn a foreign ConfigMap into the copy",
		Long:              adoptHelp,
		Example:           "  kubectl mirror adopt team-a/settings --diff",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: c.completeAdopted,
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := parseKey(args[0], c.namespace())
			switch {
			case err != nil:
				return err
			case key.Namespace == "":
				return fmt.Errorf("%q: must be NAMESPACE/NAME, or a name beside --namespace", args[0])
			case timeout <= 0:
				return fmt.Errorf("--timeout=%v: must be more than 0, such as 2m", timeout)
			}
			s, err := c.begin(cmd)
			if err != nil {
				return err
			}
			a, err := s.adoption(cmd.Context(), key, diff)
			if err != nil {
				return err
			}
			if err := output.print(cmd.OutOrStdout(), a); err != nil {
				return err
			}
			if err := confirm.ask(cmd, fmt.Sprintf("Replace the data of ConfigMap %s?", key)); err != nil {
				return err
			}
			if err := s.cluster.handOver(cmd.Context(), a.have); err != nil {
				return err
			}
			return s.awaitCopy(cmd.Context(), key, timeout)
		},
	}
	output.bind(cmd)
	confirm.bind(cmd)
	cmd.Flags().BoolVar(&diff, "diff", false, "Show the content as it is and as it would be. That prints ConfigMap data.")
	cmd.Flags().DurationVar(&timeout, "timeout", 2*time.Minute, "Time after which the command ends with exit code 1. The ConfigMap stays handed over.")
	return cmd
}

// adoption reads what is needed, and returns what the controller would replace. If it would not, adoption says why and returns
// errNo.
func (s *session) adoption(ctx context.Context, key types.NamespacedName, diff bool) (*adoption, error) {
	snap, err := s.cluster.read(ctx, s.settings.PruneLimit, key.Name)
	if err != nil {
		return nil, err
	}
	have, err := s.cluster.get(ctx, key)
	if err != nil {
		return nil, err
	}
	if have == nil {
		return nil, fmt.Errorf("there is no ConfigMap %s to hand over", key)
	}
	d, why := snap.judgeAdoption(&s.settings.Options.Options, have)
	if why != "" {
		s.say(fmt.Sprintf("Refused: ConfigMap %s %s", key, why))
		return nil, errNo
	}
	source, err := s.cluster.get(ctx, d.Source.Key)
	if err != nil {
		return nil, err
	}
	if source == nil {
		return nil, fmt.Errorf("the source %s went away meanwhile: run the command again", d.Source.Key)
	}
	a := newAdoption(d, source, have)
	a.Settings = s.settings.origin
	if diff {
		a.Diff, err = diffOf(s.cluster.rules, d.Op, key, source, have)
	}
	return a, err
}

// handOver sets annotation and label on the ConfigMap, unless it has changed since it was read.
func (c *cluster) handOver(ctx context.Context, cm *corev1.ConfigMap) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":             cm.UID,
		"resourceVersion": cm.ResourceVersion,
		"labels":          map[string]string{c.label: plan.CopyValue},
		"annotations":     map[string]string{plan.AdoptAnnotation: plan.AdoptValue},
	}})
	if err != nil {
		return err
	}
	_, err = c.client.CoreV1().ConfigMaps(cm.Namespace).Patch(ctx, cm.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	switch {
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		return fmt.Errorf("ConfigMap %s was changed meanwhile, and is not handed over: run the command again", plan.KeyOf(cm))
	case err != nil:
		return fmt.Errorf("patch ConfigMap %s: %w", plan.KeyOf(cm), err)
	}
	return nil
}

// awaitCopy waits until the ConfigMap that was handed over is a copy, says what came of it, and returns errNo if it is none.
func (s *session) awaitCopy(ctx context.Context, key types.NamespacedName, timeout time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	verdict, adopted := "", false
	err := follow(limited, func() (done bool, err error) {
		cm, err := s.cluster.get(limited, key)
		if err != nil {
			return false, err
		}
		verdict, adopted = s.cluster.adopted(cm)
		return verdict != "", nil
	})
	if verdict == "" && limited.Err() != nil {
		why := fmt.Sprintf("Timed out after %v", timeout)
		if ctx.Err() != nil {
			why = "Interrupted"
		}
		verdict, err = fmt.Sprintf("%s: ConfigMap %s is handed over, and no controller has taken it yet: does one run? To take it back: "+
			"kubectl -n %s annotate configmap %s %s-", why, key, key.Namespace, key.Name, plan.AdoptAnnotation), nil
	}
	if err != nil {
		return err
	}
	s.say(verdict)
	if !adopted {
		return errNo
	}
	return nil
}
