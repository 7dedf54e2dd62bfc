package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// isCompleter reports whether the program was called by the name under which kubectl finds the completion of a plug-in.
func isCompleter(called string) bool {
	return strings.TrimSuffix(called, ".exe") == "kubectl_complete-mirror"
}

// completionTimeout bounds what the user waits for at a press of Tab.
const completionTimeout = 3 * time.Second

type completions = func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective)

// complete returns a function that completes with what list returns. Errors show as no completion.
func complete(list func(ctx context.Context) ([]string, error)) completions {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		found, err := list(ctx)
		if err != nil || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var out []cobra.Completion
		for _, f := range found {
			if strings.HasPrefix(f, typed) {
				out = append(out, f)
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

func (c *cli) completeNamespaces(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return complete(func(ctx context.Context) ([]string, error) {
		client, err := c.client()
		if err != nil {
			return nil, err
		}
		list, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		var names []string
		for _, ns := range list.Items {
			names = append(names, ns.Name)
		}
		return names, nil
	})(cmd, args, typed)
}

func (c *cli) completeControllers(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return complete(func(ctx context.Context) ([]string, error) {
		client, err := c.client()
		if err != nil {
			return nil, err
		}
		found, _, err := installations(ctx, client)
		return keysOf(found), err
	})(cmd, nil, typed)
}

// completeExplained completes the first argument of explain with the namespaces and the sources of the cluster.
func (c *cli) completeExplained(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	namespaces, _ := c.completeNamespaces(cmd, args, typed)
	sources, directive := c.completeSources(cmd, args, typed)
	return append(namespaces, sources...), directive
}

// completeAdopted completes the first argument of adopt with the namespaces of the cluster, up to the name.
func (c *cli) completeAdopted(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	found, directive := c.completeNamespaces(cmd, args, typed)
	for i := range found {
		found[i] += "/"
	}
	return found, directive | cobra.ShellCompDirectiveNoSpace
}

// completeSources completes the first argument with the sources of the cluster.
func (c *cli) completeSources(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return complete(func(ctx context.Context) ([]string, error) {
		client, err := c.client()
		if err != nil {
			return nil, err
		}
		found, err := c.settings.find(ctx, client)
		if err != nil {
			return nil, err
		}
		all, err := newCluster(client, found).listLabelled(ctx, plan.SourceValue, "")
		var keys []string
		for _, cm := range all {
			keys = append(keys, types.NamespacedName{Namespace: cm.Namespace, Name: cm.Name}.String())
		}
		return keys, err
	})(cmd, args, typed)
}
