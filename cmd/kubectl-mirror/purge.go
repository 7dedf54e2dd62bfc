package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
)

const purgeHelp = `Delete all copies of an instance, or those of one source. SOURCE is a name or NAMESPACE/NAME, and need not exist any more.
The command shows the list and asks. It deletes only what is a copy of this instance, as the controller knows it: nothing that
has changed since it was listed, and no copy that lost its label, which counts as released. It can be interrupted and repeated.

It refuses while a controller of the instance would restore the copies: one whose Lease is renewed, or that has a ready Pod,
unless no source asks for the copies any more. It refuses, too, where the policy that protects copies is bound, and names the
command that lifts it. --force tries nevertheless.

Permissions: list ConfigMaps and namespaces, delete ConfigMaps. To find controllers: list ClusterRoleBindings or Deployments,
get Leases and list Pods in the namespace of each, and list ValidatingAdmissionPolicyBindings.

Exit codes: 0 all gone, or nothing to delete; 1 refused, not confirmed, interrupted or not all gone; 2 error.`

func newPurge(c *cli) *cobra.Command {
	var output outputFlag
	var confirm confirmation
	var dryRun, force bool
	cmd := &cobra.Command{
		Use:               "purge [SOURCE]",
		Short:             "Delete the copies of an instance, or of one source",
		Long:              purgeHelp,
		Example:           "  kubectl mirror purge --dry-run\n  kubectl mirror purge platform/settings --yes",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: c.completeSources,
		RunE: func(cmd *cobra.Command, args []string) error {
			asked, err := purgeKey(args, c.namespace())
			if err != nil {
				return err
			}
			p, err := c.beginPurge(cmd)
			if err != nil {
				return err
			}
			found, err := p.find(cmd.Context(), asked)
			if err != nil {
				return err
			}
			if err := p.object(cmd.Context(), found, dryRun || force); err != nil {
				return err
			}
			if err := output.print(cmd.OutOrStdout(), found); err != nil || dryRun || len(found.Copies) == 0 {
				return err
			}
			if err := confirm.ask(cmd, fmt.Sprintf("Delete %s?", found.summary())); err != nil {
				return err
			}
			return p.delete(cmd.Context(), found.Copies)
		},
	}
	output.bind(cmd)
	confirm.bind(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "Show the list, and what would keep it from being deleted, and delete nothing.")
	cmd.Flags().BoolVar(&force, "force", false, "Delete although a controller would restore the copies, or a policy protects them.")
	return cmd
}

// purgeKey returns the source whose copies are to go; an empty one: all copies of the instance. --namespace alone could mean
// the namespace of sources, or of copies.
func purgeKey(args []string, namespace string) (types.NamespacedName, error) {
	if len(args) == 1 {
		return parseKey(args[0], namespace)
	}
	if namespace != "" {
		return types.NamespacedName{}, fmt.Errorf("--namespace=%q: is that of SOURCE, and there is none: name a source, or leave it out to "+
			"delete the copies of the whole instance", namespace)
	}
	return types.NamespacedName{}, nil
}

// purge is one run of the command.
type purge struct {
	*session
	metadata metadata.Interface
}

func (c *cli) beginPurge(cmd *cobra.Command) (*purge, error) {
	s, err := c.begin(cmd)
	if err != nil {
		return nil, err
	}
	config, err := c.config()
	if err != nil {
		return nil, err
	}
	client, err := metadata.NewForConfig(config)
	return &purge{session: s, metadata: client}, err
}

// object says what keeps the copies from being deleted, and returns errNo then, unless that is to be said only.
func (p *purge) object(ctx context.Context, found *purgeable, only bool) error {
	objections, err := p.objections(ctx, found)
	var unknown errUnknown
	switch {
	case errors.As(err, &unknown) && only:
		p.say("Not checked: " + unknown.Error())
	case errors.As(err, &unknown):
		return fmt.Errorf("cannot check that nothing keeps the copies from being deleted: %w: --force goes on without that", err)
	case err != nil:
		return err
	}
	for _, o := range objections {
		if only {
			p.say("Objection: " + o)
		}
	}
	if len(objections) == 0 || only {
		return nil
	}
	p.say("Refused: " + strings.Join(objections, ". "))
	return errNo
}
