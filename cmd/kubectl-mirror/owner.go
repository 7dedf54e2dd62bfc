package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// owned returns a session for a user who may see no more than a namespace, by the error that says so. s is the session
// until then; nil: the settings are not known. It returns any other error.
func (c *cli) owned(cmd *cobra.Command, s *session, why error) (*session, error) {
	if !apierrors.IsForbidden(why) {
		return nil, why
	}
	if s == nil {
		client, err := c.client("")
		if err != nil {
			return nil, err
		}
		s = newSession(cmd, client, c.settings.alone)
	}
	s.isOwner = true
	s.byPayload = s.settings.deployment == nil && !c.settings.Changed("copy-label") && !c.settings.Changed("copy-annotation")
	s.say("Only what is in the namespace counts: " + why.Error())
	return s, nil
}

// reported adds the state of a source by what the controller has reported about it, if there is such a source.
func (s *session) reported(ctx context.Context, asked types.NamespacedName, r *report) error {
	cm, err := s.Get(ctx, asked)
	if cm == nil || !s.Rules.AsksToBeMirrored(cm) {
		return err
	}
	source := s.Rules.ParseSource(cm)
	reports, err := s.Reports(ctx, asked.Namespace, cm.UID)
	switch {
	case apierrors.IsForbidden(err):
		r.add(snapshot.Unknown(source, err.Error()), nil)
	case err != nil:
		return err
	default:
		r.add(reports[cm.UID].Judge(source, s.byPayload, s.settings.Instance, time.Now()), nil)
	}
	return nil
}

// explainAlone explains a ConfigMap that is no source; cm is nil if there is none.
func explainAlone(rules *plan.Rules, key types.NamespacedName, cm *corev1.ConfigMap) *explanation {
	x := &explanation{name: nameOf(key), Verdict: fmt.Sprintf("There is no ConfigMap %s.", key)}
	if cm == nil {
		return x
	}
	if source, names := plan.NamedSource(cm); names && plan.NamesItself(cm) {
		content := "matches its checksum."
		if !plan.MatchesChecksum(cm, rules.Label()) {
			content = "does not match its checksum: somebody has edited it, and the controller restores what a source wants."
		}
		x.Verdict = fmt.Sprintf("ConfigMap %s is a copy of %s, by its annotations, of instance %s. Its content %s",
			key, source, cm.Annotations[plan.InstanceAnnotation], content)
		x.Remedy = fmt.Sprintf("ask the owner of %s to leave your namespace out, or opt out of all copies: "+
			"kubectl label namespace %s %s=%s", source, key.Namespace, rules.Label(), plan.OptOutValue)
		return x
	}
	x.Verdict = fmt.Sprintf("ConfigMap %s is no copy: no controller changes it, and nothing is copied to its name.", key)
	if why, adoptable := rules.Foreign(cm); adoptable {
		x.Remedy = handOver(key)
	} else {
		x.Verdict += " But " + why + "."
	}
	return x
}

// handOver is the command that hands a foreign ConfigMap over.
func handOver(k types.NamespacedName) string {
	return fmt.Sprintf("delete or rename it, or hand it over, which REPLACES ITS DATA: "+
		"kubectl annotate -n %s configmap %s %s=%s", k.Namespace, k.Name, plan.AdoptAnnotation, plan.AdoptValue)
}
