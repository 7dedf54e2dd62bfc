package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"

	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/installation"
	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot"
)

// isCompleter reports whether the program was called by the name under which kubectl finds the completion of a plug-in.
func isCompleter(called string) bool {
	return strings.TrimSuffix(called, ".exe") == "kubectl_complete-mirror"
}

// completionTimeout bounds how long the user waits after a press of Tab.
const completionTimeout = 3 * time.Second

// complete returns a function that completes a first argument with the results of list. Errors show as no completion.
func (c *cli) complete(list func(context.Context, kubernetes.Interface) ([]string, error)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) (out []cobra.Completion, directive cobra.ShellCompDirective) {
		directive = cobra.ShellCompDirectiveNoFileComp
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		client, err := c.client("")
		if err != nil || len(args) > 0 {
			return nil, directive
		}
		found, _ := list(ctx, client)
		for _, f := range found {
			if strings.HasPrefix(f, typed) {
				out = append(out, f)
			}
		}
		return out, directive
	}
}

func (c *cli) namespaces(ctx context.Context, client kubernetes.Interface) (names []string, err error) {
	all, err := (&snapshot.Reader{Client: client}).Namespaces(ctx)
	for _, ns := range all {
		names = append(names, ns.Name)
	}
	return names, err
}

func (c *cli) controllers(ctx context.Context, client kubernetes.Interface) ([]string, error) {
	found, _, err := installation.List(ctx, client)
	return installation.Keys(found), err
}

func (c *cli) sources(ctx context.Context, client kubernetes.Interface) (keys []string, err error) {
	found, err := c.settings.Find(ctx, client)
	if err != nil {
		return nil, err
	}
	all, err := (&snapshot.Reader{Client: client, Rules: found.Rules()}).Sources(ctx)
	for _, k := range all {
		keys = append(keys, k.String())
	}
	return keys, err
}
