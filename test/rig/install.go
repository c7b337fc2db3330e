package rig

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/manifests"
)

const (
	// Namespace is the namespace in which kubemend is installed.
	Namespace = "kubemend-system"
	// Account is the user name of the manager in that cluster.
	Account = "system:serviceaccount:" + Namespace + ":" + account
	account = "kubemend-manager"
	// WorkloadUser is its user name in a workload cluster, with the kubeconfig of GrantWorkloadUser.
	WorkloadUser = "kubemend"

	workloadRoles = "config/rbac/workload-cluster.yaml"
)

// shippedRights are the kinds of the objects that define the manager's account, its rights, and what other users may not do.
var shippedRights = []string{
	"Namespace", "ServiceAccount", "ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding", "ValidatingAdmissionPolicy",
	"ValidatingAdmissionPolicyBinding",
}

// Shipped returns the objects that a folder of config/, such as "standalone", installs.
func (r *Rig) Shipped(ctx context.Context, folder string) ([]unstructured.Unstructured, error) {
	kustomize := filepath.Join(r.root, ".tools", "bin", "kustomize")
	if _, err := os.Stat(kustomize); err != nil {
		return nil, fmt.Errorf("build config/%s: %w: run make tools", folder, err)
	}
	build := exec.CommandContext(ctx, kustomize, "build", filepath.Join(r.root, "config", folder))
	var stderr bytes.Buffer
	build.Stderr = &stderr
	content, err := build.Output()
	if err != nil {
		return nil, fmt.Errorf("build config/%s: %w: %s", folder, err, stderr.String())
	}
	return manifests.Decode(content)
}

// WorkloadRoles returns the roles that kubemend ships for workload clusters.
func (r *Rig) WorkloadRoles() ([]unstructured.Unstructured, error) {
	content, err := os.ReadFile(filepath.Join(r.root, workloadRoles))
	if err != nil {
		return nil, fmt.Errorf("read the roles for workload clusters: %w", err)
	}
	return manifests.Decode(content)
}

// Install creates the manager's ServiceAccount with exactly the rights that a folder of config/ ships, and returns a kubeconfig with its
// token. So an action without a shipped right fails in tests too. It installs nothing else of that folder. RoleControllers add the rights
// of remediators.
func (c *ControlPlane) Install(ctx context.Context, folder string) ([]byte, error) {
	shipped, err := c.rig.Shipped(ctx, folder)
	if err != nil {
		return nil, err
	}
	var rights []client.Object
	for i := range shipped {
		if slices.Contains(shippedRights, shipped[i].GetKind()) {
			rights = append(rights, &shipped[i])
		}
	}
	if err := c.grant(ctx, Account, rights); err != nil {
		return nil, fmt.Errorf("install the rights of config/%s: %w", folder, err)
	}
	clientset, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return nil, fmt.Errorf("make a client for %s: %w", c.name, err)
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: ptr.To(int64(certificateLife / time.Second)),
	}}
	answer, err := clientset.CoreV1().ServiceAccounts(Namespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("ask for a token of %s: %w", Account, err)
	}
	return kubeconfig(c.name, c.apiPort.address(), c.ca, &clientcmdapi.AuthInfo{Token: answer.Status.Token})
}

// GrantWorkloadUser creates a user with the named roles of those that kubemend ships for workload clusters, or with all of them, and
// returns a kubeconfig for that user. See SharedKubeconfigSecret.
func (c *ControlPlane) GrantWorkloadUser(ctx context.Context, named ...string) ([]byte, error) {
	roles, err := c.rig.WorkloadRoles()
	if err != nil {
		return nil, err
	}
	var rights []client.Object
	for i := range roles {
		name := roles[i].GetName()
		if len(named) > 0 && !slices.Contains(named, name) {
			continue
		}
		rights = append(rights, &roles[i], &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: WorkloadUser}},
		})
	}
	if err := c.grant(ctx, WorkloadUser, rights); err != nil {
		return nil, fmt.Errorf("install the rights for workload clusters: %w", err)
	}
	_, content, err := c.User(WorkloadUser)
	return content, err
}

// grant creates the objects, some of which may exist, and waits until the API server applies those roles among them that are bound: it
// stores a role a moment before it applies it.
func (c *ControlPlane) grant(ctx context.Context, user string, rights []client.Object) error {
	admin, err := client.New(c.Config(), client.Options{Scheme: clientgoscheme.Scheme})
	if err != nil {
		return fmt.Errorf("make a client for %s: %w", c.name, err)
	}
	for _, o := range rights {
		if err := admin.Create(ctx, o); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("make %T %s: %w", o, o.GetName(), err)
		}
	}
	bindings := &rbacv1.ClusterRoleBindingList{}
	if err := admin.List(ctx, bindings); err != nil {
		return fmt.Errorf("list bindings: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	for i := range bindings.Items {
		binding := &bindings.Items[i]
		if !slices.ContainsFunc(rights, func(o client.Object) bool { return o.GetUID() == binding.UID }) {
			continue
		}
		role := &rbacv1.ClusterRole{}
		if err := admin.Get(ctx, client.ObjectKey{Name: binding.RoleRef.Name}, role); err != nil {
			return fmt.Errorf("read what %s is bound to: %w", binding.Name, err)
		}
		if len(role.Rules) == 0 {
			continue // an aggregated role whose parts do not exist yet
		}
		if err := wait.PollUntilContextCancel(ctx, askEvery, true, mayDo(admin, user, role.Rules[len(role.Rules)-1])); err != nil {
			return fmt.Errorf("wait until %s has the rights of %s: %w", user, role.Name, err)
		}
	}
	return nil
}

// mayDo asks the API server whether the user may use the first verb of a rule on its first resource.
func mayDo(admin client.Client, user string, rule rbacv1.PolicyRule) wait.ConditionWithContextFunc {
	return func(ctx context.Context) (bool, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user}}
		if len(rule.NonResourceURLs) > 0 {
			review.Spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: rule.Verbs[0], Path: rule.NonResourceURLs[0]}
		} else {
			resource, subresource, _ := strings.Cut(rule.Resources[0], "/")
			review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
				Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: resource, Subresource: subresource,
			}
		}
		if err := admin.Create(ctx, review); err != nil {
			return false, fmt.Errorf("ask what %s may do: %w", user, err)
		}
		return review.Status.Allowed, nil
	}
}

// coreKubeconfig is the key of the kubeconfig that core uses instead of the shared one; see test/rig/capi.
const coreKubeconfig = "core"

// KubeconfigSecret gives Cluster API access to the workload cluster of a Cluster. Create it before the Cluster's infrastructure is
// provisioned: Cluster API tries a failed connection again only after 30 s.
func KubeconfigSecret(cluster client.ObjectKey, workload *ControlPlane) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cluster.Namespace,
			Name:      secret.Name(cluster.Name, secret.Kubeconfig),
			Labels:    map[string]string{clusterv1.ClusterNameLabel: cluster.Name},
		},
		Type: clusterv1.ClusterSecretType,
		Data: map[string][]byte{secret.KubeconfigDataName: workload.Kubeconfig()},
	}
}

// SharedKubeconfigSecret is KubeconfigSecret with a kubeconfig for kubemend, such as that of GrantWorkloadUser, and the administrator's for
// core. Cluster API has one Secret for all clients, whose user needs the rights of core: to label, drain and delete nodes. Only with
// separate kubeconfigs can a test show that kubemend needs fewer rights.
func SharedKubeconfigSecret(cluster client.ObjectKey, workload *ControlPlane, kubemend []byte) *corev1.Secret {
	s := KubeconfigSecret(cluster, workload)
	s.Data[coreKubeconfig], s.Data[secret.KubeconfigDataName] = s.Data[secret.KubeconfigDataName], kubemend
	return s
}
