package leftovers

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// findRequests reads the objects of every kind that has a ...Template beside it: of no other kind are requests.
//
// Groups of APIs that are not served at this moment are those of other API servers; requests are custom resources.
func (s *look) findRequests(ctx context.Context) error {
	lists, err := s.Discovery.ServerPreferredResources()
	if _, others := discovery.GroupDiscoveryFailedErrorGroups(err); err != nil && !others {
		return fmt.Errorf("discover kinds of remediation requests: %w", err)
	}
	for _, list := range lists {
		kinds, err := remediationrequest.KindsIn(list)
		if err != nil {
			return err
		}
		for _, r := range kinds {
			kind := schema.FromAPIVersionAndKind(list.GroupVersion, r.Kind)
			served, err := s.Serves(ctx, r.Name+"."+kind.Group)
			if err != nil {
				return err
			}
			requests, err := listOf(ctx, s.Live, kind, "")
			if apierrors.IsForbidden(err) && s.Namespace != "" {
				requests, err = listOf(ctx, s.Live, kind, s.Namespace)
			}
			if err != nil && !apierrors.IsForbidden(err) && !remediationrequest.Missing(err) { // else no request of ours can be there
				return err
			}
			for i := range requests {
				s.findMarks(&requests[i], served)
			}
		}
	}
	return nil
}

// findMarks finds the marks of checks on a request, and what it has of a remediation of a host. Of one whose power cycle is under way the
// mark of its maker and the name of its record are removed, and nothing else.
func (s *look) findMarks(req *metadata, served bool) {
	if by := remediationrequest.NodeCheckOf(req); by.Name != "" || by.UID != "" {
		do, why := ofNodeCheck(s.nodeChecks, req.DeletionTimestamp, s.now)
		s.found(req, do, why,
			mendv1.MadeByNodeCheckAnnotation, mendv1.RecordAnnotation, mendv1.MadeByNodeCheckUIDLabel)
	}
	if s.Namespace != "" && req.Namespace != s.Namespace {
		return
	}
	by, ours := remediationrequest.MadeBy(req)
	if _, labelled := req.Labels[mendv1.MadeByUIDLabel]; ours || labelled {
		check := s.checks[client.ObjectKey{Namespace: req.Namespace, Name: by.Name}]
		if s.watched(req) || check != nil && s.watched(check) {
			do, why := ofCheck(check == nil || !check.DeletionTimestamp.IsZero(), req.DeletionTimestamp, s.now)
			s.found(req, do, why, mendv1.MadeByAnnotation, mendv1.RecordAnnotation, mendv1.MadeByUIDLabel)
		}
	}
	s.findRemediation(req, served)
}

// ofCheck is what becomes of a request of a MachineHealthCheck, which is gone if it is orphaned.
func ofCheck(orphaned bool, deleted *metav1.Time, now time.Time) (action, string) {
	switch {
	case !orphaned:
		return unmark, coreGoesOn
	case deleted != nil:
		return waitOr(unmark, deleted.Time, now, "its remediator has not released it")
	}
	return erase, "no check would ever end it: the MachineHealthCheck that made it is gone"
}

// ofNodeCheck is what becomes of a request of a NodeHealthCheck. The controller of those, if it is ours, deletes it.
func ofNodeCheck(ours bool, deleted *metav1.Time, now time.Time) (action, string) {
	switch {
	case !ours:
		return unmark, "another operator acts on NodeHealthChecks"
	case deleted != nil:
		return waitOr(unmark, deleted.Time, now, "its remediator has not released it")
	}
	return wait, "it is about to be deleted"
}

// waitOr waits until patience is over, and then does that.
func waitOr(then action, since, now time.Time, why string) (action, string) {
	if now.Before(since.Add(patience)) {
		return wait, why
	}
	return then, fmt.Sprintf("%s within %s", why, patience)
}

func (s *look) findRemediation(rem *metadata, served bool) {
	memory, remembers := rem.Annotations[mendv1.PowerCycleAnnotation]
	holds := slices.Contains(rem.Finalizers, mendv1.HostRemediationFinalizer) ||
		served && slices.Contains(rem.Finalizers, infrav1.RemediationFinalizer)
	if !remembers && !holds && rem.Annotations[clusterctlv1.BlockMoveAnnotation] != mendv1.Claim {
		s.others[rem.UID] = !served
		return
	}
	var record struct {
		UID    types.UID `json:"uid"`
		Filter string    `json:"filter"`
	}
	_ = json.Unmarshal([]byte(memory), &record) // what cannot be read is ours all the same
	switch {
	case s.WatchFilterValue != "" && record.Filter != s.WatchFilterValue && !s.watched(rem):
		s.others[rem.UID], s.others[record.UID] = true, true
		return
	case served:
		s.found(rem, wait, "its power cycle is being released; its status says how far that is")
	default:
		l := s.found(rem, unmark, "no controller of kubemend acts on its kind",
			mendv1.PowerCycleAnnotation, mendv1.RecordAnnotation, mendv1.WaitsForAnnotation)
		if l.finalizer = mendv1.HostRemediationFinalizer; rem.Annotations[clusterctlv1.BlockMoveAnnotation] == mendv1.Claim {
			l.marks = append(l.marks, clusterctlv1.BlockMoveAnnotation)
		}
	}
	s.atWork[rem.UID], s.atWork[record.UID] = served, served
}
