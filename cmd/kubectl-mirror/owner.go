package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// beginOne is begin for a command about one ConfigMap, which also serves a user who may see no more than a namespace.
func (c *cli) beginOne(cmd *cobra.Command, arg string) (s *session, asked types.NamespacedName, err error) {
	if asked, err = c.parseKey(arg); err != nil {
		return nil, asked, err
	}
	s, err = c.begin(cmd)
	if limit := err; apierrors.IsForbidden(limit) {
		var client kubernetes.Interface
		if client, err = c.client(""); err == nil {
			s = c.newSession(cmd, client, c.settings.alone)
			s.isLimited(limit)
		}
	}
	return s, asked, err
}

// isLimited reports whether the error says that the user may see no more than a namespace, and remembers that.
func (s *session) isLimited(err error) bool {
	if apierrors.IsForbidden(err) {
		s.limit = err
		status := apierrors.APIStatus(nil)
		errors.As(err, &status)
		s.say("This is what the namespace shows; for the whole cluster: " + status.Status().Message)
	}
	return s.limit != nil
}

// reported returns the state of a source by what the controller has reported about it; none if there is no such source.
func (s *session) reported(ctx context.Context, asked types.NamespacedName) ([]*snapshot.Source, error) {
	cm, err := s.Get(ctx, asked)
	if cm == nil || !s.Rules.AsksToBeMirrored(cm) {
		return nil, err
	}
	source := s.Rules.ParseSource(cm)
	reports, err := s.Reports(ctx, asked.Namespace, cm.UID)
	if apierrors.IsForbidden(err) {
		return []*snapshot.Source{snapshot.Unknown(source, err.Error())}, nil
	}
	return []*snapshot.Source{reports[cm.UID].Judge(source, s.settings.Instance, time.Now())}, err
}

// explainAlone explains a ConfigMap that is no source; cm is nil if there is none.
func explainAlone(rules *plan.Rules, key types.NamespacedName, cm *corev1.ConfigMap) *explanation {
	x := &explanation{Verdict: fmt.Sprintf("There is no ConfigMap %s. You may not see whether a source claims it.", key)}
	if cm == nil {
		return x
	}
	if m := plan.MarksOf(cm); m.Itself && m.Source.Name != "" {
		content := "matches its checksum."
		if !rules.MatchesChecksum(cm) {
			content = "does not match its checksum: it was edited, and is restored unless its source is gone or holds it."
		}
		x.Verdict = fmt.Sprintf("ConfigMap %s is a copy of %s, by its annotations, of instance %s. Its content %s",
			key, m.Source, m.Instance, content)
		x.Remedy = fmt.Sprintf("ask the owner of %s to leave your namespace out, or opt out of all copies, "+
			labelNamespace+"=%s", m.Source, key.Namespace, rules.Label(), plan.OptOutValue)
		return x
	}
	x.Verdict = fmt.Sprintf("ConfigMap %s is no copy: no controller changes it, and nothing is copied to its name.%s",
		key, toPublish(rules, cm))
	if why, adoptable := rules.Foreign(cm); adoptable {
		x.Remedy = "if a copy should be there, " + handOver(key)
	} else {
		x.Verdict += " But " + why + "."
	}
	return x
}

// toPublish says how to publish a ConfigMap whose label has another value, as one that was made from a copy; it is
// empty for any other.
func toPublish(rules *plan.Rules, cm *corev1.ConfigMap) string {
	if cm == nil {
		return ""
	}
	value, has := cm.Labels[rules.Label()]
	if !has || value == plan.SourceValue || plan.MarksOf(cm).Itself {
		return ""
	}
	return fmt.Sprintf(" Its label %s=%s does not publish it: kubectl label configmap/%s -n %s %[1]s=%[5]s --overwrite",
		rules.Label(), value, cm.Name, cm.Namespace, plan.SourceValue)
}

// handOver is the command that hands a foreign ConfigMap over.
func handOver(k types.NamespacedName) string {
	return fmt.Sprintf("delete or rename it, or hand it over, which REPLACES ITS DATA: "+
		"kubectl annotate -n %s configmap %s %s=%s", k.Namespace, k.Name, plan.AdoptAnnotation, plan.AdoptValue)
}
