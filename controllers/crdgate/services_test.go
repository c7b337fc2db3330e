package crdgate

import (
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A command that only reports who serves a kind has just a client.
func TestWhoServesAKindIsSaidAlsoWhereNothingIsStarted(t *testing.T) {
	const (
		metal3, own, hosts, between, nodes = "metal3remediations.infrastructure.cluster.x-k8s.io", "hostremediations.kubemend.io",
			"baremetalhosts.metal3.io", "metal3machines.infrastructure.cluster.x-k8s.io", "nodehealthchecks.remediation.medik8s.io"
		capm3s = "its CustomResourceDefinition belongs to infrastructure-metal3, whose controller serves it"
		olms   = "its CustomResourceDefinition belongs to operator node-healthcheck-operator, whose controller serves it"
		olm1s  = "its CustomResourceDefinition belongs to ClusterExtension medik8s, whose controller serves it"
	)
	ofCAPM3 := map[string]string{clusterv1.ProviderNameLabel: "infrastructure-metal3"}
	ofOLM := map[string]string{"operators.coreos.com/node-healthcheck-operator": ""}
	ofOLM1 := map[string]string{"olm.operatorframework.io/owner-kind": "ClusterExtension", "olm.operatorframework.io/owner-name": "medik8s"}
	for name, tc := range map[string]struct {
		service  *Service
		crds     map[string]map[string]string
		word     string
		sentence string
	}{
		"Metal3Remediations are ours without CAPM3":       {service: Metal3Remediations(Auto), crds: map[string]map[string]string{metal3: nil, hosts: nil, between: ofCAPM3}},
		"with CAPM3 they are its own":                     {Metal3Remediations(Auto), map[string]map[string]string{metal3: ofCAPM3, hosts: nil, between: ofCAPM3}, "Foreign", capm3s},
		"unless the user says otherwise":                  {service: Metal3Remediations(On), crds: map[string]map[string]string{metal3: ofCAPM3, hosts: nil, between: ofCAPM3}},
		"or wants none of it":                             {Metal3Remediations(Off), nil, "Off", "it is switched off by a flag"},
		"HostRemediations are ours beside CAPM3":          {service: HostRemediations(), crds: map[string]map[string]string{own: ofCAPM3, hosts: nil, between: ofCAPM3}},
		"but not before there are hosts":                  {HostRemediations(), map[string]map[string]string{own: nil}, "Waiting", "these are not installed: " + hosts + ", " + between},
		"hosts are looked at wherever they are":           {&Service{CRD: HostCRD, Choice: Auto}, map[string]map[string]string{hosts: ofCAPM3}, "", ""},
		"NodeHealthChecks are ours without another owner": {service: NodeHealthChecks(Auto), crds: map[string]map[string]string{nodes: nil}},
		"of the operator of that name they are not":       {NodeHealthChecks(Auto), map[string]map[string]string{nodes: ofOLM}, "Foreign", olms},
		"nor of one that version 1 of OLM has installed":  {NodeHealthChecks(Auto), map[string]map[string]string{nodes: ofOLM1}, "Foreign", olm1s},
		"what is not installed is not served":             {NodeHealthChecks(Auto), nil, "NotInstalled", "its CustomResourceDefinition is not installed"},
	} {
		t.Run(name, func(t *testing.T) {
			s := environmentWith(t, Auto)
			for crd, labels := range tc.crds {
				s.has(crd, labels)
			}
			word, sentence, err := (&Reconciler{Client: s.client}).Why(t.Context(), tc.service)
			must.Do(t, err)
			if word != tc.word || sentence != tc.sentence {
				t.Errorf("%q, %q; want %q, %q", word, sentence, tc.word, tc.sentence)
			}
		})
	}
}

func TestNodeHealthChecksAreThoseOfMedik8sOperatorWhereThatLeads(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for namespace, word := range map[string]string{
		"openshift-workload-availability": "Foreign", "openshift-operators": "Foreign", "operators": "Foreign", "medik8s": "Foreign",
		"node-healthcheck-operator-system": "Foreign", "tenant": "",
	} {
		s := environmentWith(t, Auto)
		s.has(NodeCheckCRD, nil)
		live := led(client.ObjectKey{Namespace: namespace, Name: "e1f13584.medik8s.io"}, "a", now.Add(-time.Second))
		r := &Reconciler{Client: s.client, Live: live, Clock: clocktesting.NewFakePassiveClock(now)}
		for choice, want := range map[Choice]string{Auto: word, On: ""} {
			if got, _, err := r.Why(t.Context(), NodeHealthChecks(choice)); err != nil || got != want {
				t.Errorf("%s, %s: %q, %v; want %q", namespace, choice, got, err, want)
			}
		}
	}
}
