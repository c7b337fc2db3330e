package snapshot

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

var recordGVK = mendv1.GroupVersion.WithKind("RemediationRecord")

// recordsKept is how many RemediationRecords a file has at most: the newest.
const recordsKept = 5000

// Brief is what most readers need of a RemediationRecord: without its steps, waits, conditions, counts and managed fields, which are most of it, and of its
// evidence no more than how much there is.
type Brief struct {
	*mendv1.RemediationRecord

	raw []byte
}

// Whole is the whole record.
func (b Brief) Whole() (*mendv1.RemediationRecord, error) {
	if b.raw == nil {
		return b.RemediationRecord, nil
	}
	whole := &mendv1.RemediationRecord{}
	if err := utiljson.Unmarshal(b.raw, whole); err != nil {
		return nil, fmt.Errorf("read RemediationRecord %s/%s: %w", b.Namespace, b.Name, err)
	}
	return whole, nil
}

// brief is the JSON of a record, as far as it is needed.
type brief struct {
	Metadata struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`

		ManagedFields unread `json:"managedFields"`
	} `json:"metadata"`
	Spec struct {
		Mode           mendv1.RecordMode      `json:"mode"`
		Target         mendv1.RecordTarget    `json:"target"`
		Requester      mendv1.RecordRequester `json:"requester"`
		Cause          string                 `json:"cause"`
		Evidence       []struct{}             `json:"evidence"`
		UnhealthySince *metav1.Time           `json:"unhealthySince"`
		Due            *metav1.Time           `json:"due"`
		Decided        metav1.Time            `json:"decided"`
		BlockedBy      string                 `json:"blockedBy"`
		Counts         unread                 `json:"counts"`
	} `json:"spec"`
	Status struct {
		Begun        *metav1.Time              `json:"begun"`
		BegunBy      string                    `json:"begunBy"`
		CapacityBack *metav1.Time              `json:"capacityBack"`
		Ended        *metav1.Time              `json:"ended"`
		Outcome      mendv1.RecordOutcome      `json:"outcome"`
		Replacement  *mendv1.RecordReplacement `json:"replacement"`
		Steps        unread                    `json:"steps"`
		Waits        unread                    `json:"waits"`
		Conditions   unread                    `json:"conditions"`
	} `json:"status"`
}

// unread is a value that is known to be there and is not read.
type unread struct{}

// UnmarshalJSONFrom goes over the value as a whole, which takes half as long as the token after token of a field that is not known.
func (unread) UnmarshalJSONFrom(from *jsontext.Decoder) error {
	_, err := from.ReadValue()
	return err
}

func briefly(raw []byte) (Brief, error) {
	var is brief
	if err := json.Unmarshal(raw, &is, lax); err != nil {
		return Brief{}, err
	}
	r := &mendv1.RemediationRecord{}
	r.Namespace, r.Name = is.Metadata.Namespace, is.Metadata.Name
	r.Spec = mendv1.RemediationRecordSpec{
		Mode: is.Spec.Mode, Target: is.Spec.Target, Requester: is.Spec.Requester, Cause: is.Spec.Cause, UnhealthySince: is.Spec.UnhealthySince,
		Due: is.Spec.Due, Decided: is.Spec.Decided, BlockedBy: is.Spec.BlockedBy, Evidence: make([]mendv1.RecordEvidence, len(is.Spec.Evidence)),
	}
	r.Status = mendv1.RemediationRecordStatus{
		Begun: is.Status.Begun, BegunBy: is.Status.BegunBy, CapacityBack: is.Status.CapacityBack, Ended: is.Status.Ended, Outcome: is.Status.Outcome,
		Replacement: is.Status.Replacement,
	}
	return Brief{RemediationRecord: r, raw: raw}, nil
}

// EachRecord reads the RemediationRecords of a namespace, or of all if that is empty, as one stream, and gives each of them away as soon as it was parsed: on
// all processors, so give has to be safe for concurrent use. None is in memory for longer than give keeps it. Where the kind is not installed, the error is
// one that apierrors.IsNotFound recognizes.
func EachRecord(ctx context.Context, config *rest.Config, namespace string, give func(Brief) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	list, err := streamOfRecords(ctx, config, namespace)
	if err != nil {
		return err
	}
	defer func() { _ = list.Close() }() // it was only read
	return eachObject(list, func(object []byte) error {
		is, err := briefly(object)
		if err != nil {
			return err
		}
		return give(is)
	})
}

func streamOfRecords(ctx context.Context, config *rest.Config, namespace string) (io.ReadCloser, error) {
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("reach the management cluster: %w", err)
	}
	scheme := k8sruntime.NewScheme()
	if err := mendv1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	reader, err := apiutil.RESTClientForGVK(recordGVK, false, false, config, serializer.NewCodecFactory(scheme), httpClient)
	if err != nil {
		return nil, fmt.Errorf("reach the management cluster: %w", err)
	}
	return reader.Get().NamespaceIfScoped(namespace, namespace != "").Resource("remediationrecords").
		VersionedParams(&metav1.ListOptions{ResourceVersion: "0"}, metav1.ParameterCodec).Stream(ctx)
}

// newest are those of a task that were created last, if it is to keep no more; that there were more is noted.
func (r *reading) newest(t task, all []client.Object) []client.Object {
	if t.most == 0 || len(all) <= t.most {
		return all
	}
	r.snapshot.Lacks(plural(t.gvk.Kind), fmt.Sprintf("only the newest %d of %d are kept", t.most, len(all)))
	slices.SortFunc(all, func(a, b client.Object) int {
		younger := b.GetCreationTimestamp().Compare(a.GetCreationTimestamp().Time)
		return cmp.Or(younger, compareKeys(client.ObjectKeyFromObject(a), client.ObjectKeyFromObject(b)))
	})
	return all[:t.most]
}

// records are the RemediationRecords, if they are wanted.
func (r *reading) records() []task {
	if !r.Records {
		return nil
	}
	return []task{{gvk: recordGVK, namespace: r.Namespace, most: recordsKept, options: r.labelled(), keep: func(o client.Object) bool {
		record, is := o.(*mendv1.RemediationRecord)
		return r.Cluster == "" || is && record.Spec.Target.ClusterName == r.Cluster
	}}}
}

// openRecords are the open RemediationRecords, if they are wanted: those of the namespace, and those of NodeHealthChecks, which are where their requests are.
// The API server looks through closed ones by a label.
func (r *reading) openRecords() []task {
	if !r.OpenRecords || r.Records {
		return nil
	}
	namespaces := []string{r.Namespace}
	for _, check := range All[nhcv1.NodeHealthCheck](r.snapshot, "") {
		for _, ref := range TemplatesOf(&check.Spec) {
			if r.Namespace != "" && ref.Namespace != "" && !slices.Contains(namespaces, ref.Namespace) {
				namespaces = append(namespaces, ref.Namespace)
			}
		}
	}
	tasks := make([]task, 0, len(namespaces))
	for _, namespace := range namespaces {
		tasks = append(tasks, task{gvk: recordGVK, namespace: namespace, options: []client.ListOption{client.MatchingLabels{mendv1.RecordOpenLabel: "true"}}})
	}
	return tasks
}
