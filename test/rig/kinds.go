package rig

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/kubemend/kubemend/test/manifests"
)

// Paths of manifests in the Cluster API module and in this project.
const (
	coreCRDs     = "core/config/crd/bases"
	coreWebhooks = "core/config/webhook/manifests.yaml"
	ourCRDs      = "config/crd/bases"
	ourWebhooks  = "config/webhook/manifests.yaml"
	// controlPlaneCRDs are installed without their controller, because core reads objects of these kinds.
	controlPlaneCRDs = "controlplane/kubeadm/config/crd/bases"
	simulatedCRDs    = "test/simulator/crds"
)

// askKindEvery is longer than askEvery: a poll asks for all kinds, while the API server is busy with installing them.
const askKindEvery = 5 * askEvery

// CertManager returns files with the CRDs of cert-manager's Certificate and Issuer, for ManagementOptions.CRDs. cert-manager does not run
// in a rig: see Trust.
func CertManager() ([]string, error) {
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	folder, err := dependency(filepath.Join(root, "test", "rig", "certmanager"), "github.com/cert-manager/cert-manager")
	kinds := filepath.Join(folder, "deploy", "crds")
	return []string{filepath.Join(kinds, "cert-manager.io_certificates.yaml"), filepath.Join(kinds, "cert-manager.io_issuers.yaml")}, err
}

// ClusterAPI returns the folder of Cluster API's module, which has the manifests of its providers.
func ClusterAPI() (string, error) { return clusterAPI() }

// catalogue has CRDs by name. A later CRD replaces an earlier one of the same name.
type catalogue map[string]*apiextensionsv1.CustomResourceDefinition

// readCatalogue reads the CRDs of Cluster API, of the simulators, and of more, which may contain kubemend's.
func (r *Rig) readCatalogue(hooks, ours *webhooks, more []string) (catalogue, error) {
	upstream, err := clusterAPI()
	if err != nil {
		return nil, err
	}
	all := catalogue{}
	ofCore, err := all.add(filepath.Join(upstream, coreCRDs))
	if err != nil {
		return nil, err
	}
	for _, crd := range ofCore {
		label(crd)
		if hooks != nil {
			crd.Spec.Conversion = hooks.conversion()
		}
	}
	ofControlPlane, err := all.add(filepath.Join(upstream, controlPlaneCRDs))
	if err != nil {
		return nil, err
	}
	for _, crd := range ofControlPlane {
		label(crd)
	}
	if _, err := all.add(filepath.Join(r.root, simulatedCRDs)); err != nil {
		return nil, err
	}
	for _, folder := range more {
		added, err := all.add(folder)
		if err != nil {
			return nil, err
		}
		for _, crd := range added {
			if ours != nil && len(crd.Spec.Versions) > 1 {
				crd.Spec.Conversion = ours.conversion()
			}
		}
	}
	return all, nil
}

// label sets the labels that say which version follows which contract of Cluster API. In upstream's release kustomize adds them; the files
// of the module do not have them.
func label(crd *apiextensionsv1.CustomResourceDefinition) {
	if crd.Labels == nil {
		crd.Labels = map[string]string{}
	}
	for _, version := range []string{"v1beta1", "v1beta2"} {
		crd.Labels[clusterv1.GroupVersion.Group+"/"+version] = version
	}
}

// add reads all CRDs of a file, or of the YAML files in a folder.
func (all catalogue) add(path string) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	read := envtest.CRDInstallOptions{Paths: []string{path}, ErrorIfPathMissing: true}
	if err := envtest.ReadCRDFiles(&read); err != nil {
		return nil, fmt.Errorf("read CRDs: %w", err)
	}
	for _, crd := range read.CRDs {
		all[crd.Name] = crd
	}
	return read.CRDs, nil
}

// install creates all CRDs and returns when they are served. It tries again if a busy API server took too long.
func (all catalogue) install(ctx context.Context, cfg *rest.Config) error {
	cfg.WarningHandler = rest.NoWarnings{} // v1beta1 is deprecated, which is no news
	cfg.QPS = -1
	for {
		_, err := envtest.InstallCRDs(cfg, envtest.CRDInstallOptions{CRDs: slices.Collect(maps.Values(all)), MaxTime: startPatience})
		switch {
		case err == nil:
			return all.listed(ctx, cfg)
		case !apierrors.IsTimeout(err) || ctx.Err() != nil:
			return fmt.Errorf("install CRDs: %w", err)
		}
	}
}

// listed waits until discovery lists the kinds as well: the API server may serve a kind before, but a manager exits if discovery lacks one.
func (all catalogue) listed(ctx context.Context, cfg *rest.Config) error {
	server, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return fmt.Errorf("make a client for CRDs: %w", err)
	}
	var missing error
	err = wait.PollUntilContextCancel(ctx, askKindEvery, true, func(context.Context) (bool, error) {
		_, lists, err := server.ServerGroupsAndResources()
		missing = errors.Join(err, all.missing(lists))
		return missing == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the list of kinds: %w, last answer: %w", err, missing)
	}
	return nil
}

// missing returns an error for each kind that is in none of the lists.
func (all catalogue) missing(lists []*metav1.APIResourceList) error {
	known := map[string]bool{}
	for _, list := range lists {
		for i := range list.APIResources {
			known[list.GroupVersion+"/"+list.APIResources[i].Name] = true
		}
	}
	var errs []error
	for _, crd := range all {
		for _, version := range crd.Spec.Versions {
			name := strings.Join([]string{crd.Spec.Group, version.Name, crd.Spec.Names.Plural}, "/")
			if version.Served && !known[name] {
				errs = append(errs, fmt.Errorf("%s is not listed", name))
			}
		}
	}
	return errors.Join(errs...)
}

// webhooks is the webhook server of a manager.
type webhooks struct {
	// name is the name of the manager. It is a prefix of configurations, which have the same name in all projects before kustomize runs.
	name     string
	port     *port
	caBundle []byte
}

func (c *ControlPlane) newWebhooks(name string) (*webhooks, error) {
	p, err := c.reservePort()
	if err != nil {
		return nil, err
	}
	return &webhooks{name: name, port: p, caBundle: c.ca.pem}, nil
}

// flags are the flags that make a manager serve webhooks there. All managers of Cluster API have them.
func (h *webhooks) flags(c *ControlPlane) []string {
	return []string{"--webhook-port=" + h.port.String(), "--webhook-cert-dir=" + c.folder}
}

func (h *webhooks) url(path string) string { return "https://" + h.port.address() + path }

// install creates the webhook configurations of a manifest.
func (h *webhooks) install(ctx context.Context, cfg *rest.Config, manifest string) error {
	content, err := os.ReadFile(manifest)
	if err != nil {
		return fmt.Errorf("read manifests: %w", err)
	}
	all, err := manifests.Decode(content)
	if err != nil {
		return err
	}
	admin, err := client.New(cfg, client.Options{})
	if err != nil {
		return fmt.Errorf("make a client for webhooks: %w", err)
	}
	for i := range all {
		o := &all[i]
		err := h.trust(o)
		o.SetName(h.name + "-" + o.GetName())
		if err = errors.Join(err, admin.Create(ctx, o)); err != nil {
			return fmt.Errorf("install %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

// Trust changes an object as cert-manager and a Service would in a cluster: the API server finds the manager that was started with
// WebhookFlags and trusts its certificate. It changes webhook configurations and the conversion of CRDs, and no other object.
func (c *ControlPlane) Trust(o *unstructured.Unstructured) error {
	if c.ours == nil {
		var err error
		if c.ours, err = c.newWebhooks("kubemend"); err != nil {
			return err
		}
	}
	if err := c.ours.trust(o); err != nil {
		return fmt.Errorf("lead %s %s to the manager: %w", o.GetKind(), o.GetName(), err)
	}
	return nil
}

func (h *webhooks) trust(o *unstructured.Unstructured) error {
	switch o.GetKind() {
	case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
		hooks, _, err := unstructured.NestedSlice(o.Object, "webhooks")
		if err != nil {
			return err
		}
		for _, hook := range hooks {
			if err := h.lead(hook.(map[string]any), "clientConfig"); err != nil {
				return err
			}
		}
		return unstructured.SetNestedSlice(o.Object, hooks, "webhooks")
	case "CustomResourceDefinition":
		if _, converted, err := unstructured.NestedMap(o.Object, "spec", "conversion", "webhook"); err != nil || !converted {
			return err
		}
		return h.lead(o.Object, "spec", "conversion", "webhook", "clientConfig")
	default:
		return nil
	}
}

// lead replaces the Service of a clientConfig, which does not exist, by the manager's port on loopback.
func (h *webhooks) lead(object map[string]any, clientConfig ...string) error {
	path, found, err := unstructured.NestedString(object, append(clientConfig, "service", "path")...)
	if err != nil || !found {
		return errors.Join(err, errors.New("find the path of its Service: there is none"))
	}
	return unstructured.SetNestedMap(object, map[string]any{
		"url": h.url(path), "caBundle": base64.StdEncoding.EncodeToString(h.caBundle),
	}, clientConfig...)
}

// asked checks that the API server calls the webhooks, with a MachineHealthCheck that they must refuse. The API server stores a
// registration a moment before it uses it, and accepts everything until then.
//
// The object is applied, not created: for two seconds after a kind is established, the API server delays every creation by two seconds.
func (h *webhooks) asked(cfg *rest.Config) func(context.Context) error {
	return func(ctx context.Context) error {
		api, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			return fmt.Errorf("make a client for webhooks: %w", err)
		}
		bad := fmt.Sprintf(`{"apiVersion":%q,"kind":"MachineHealthCheck","metadata":{"name":"refused"},`+
			`"spec":{"clusterName":"none","selector":{}}}`, clusterv1.GroupVersion.String())
		err = api.RESTClient().Patch(types.ApplyYAMLPatchType).
			AbsPath("/apis", clusterv1.GroupVersion.Group, clusterv1.GroupVersion.Version,
				"namespaces/default/machinehealthchecks/refused").
			Param("dryRun", "All").Param("fieldManager", "rig").Body([]byte(bad)).Do(ctx).Error()
		switch {
		case err == nil:
			return errors.New("have a bad MachineHealthCheck refused: it was accepted")
		case strings.Contains(err.Error(), "selector must not be empty"):
			return nil
		default:
			return fmt.Errorf("have a bad MachineHealthCheck refused: %w", err)
		}
	}
}

// conversion makes a CRD use the manager's webhook server.
func (h *webhooks) conversion() *apiextensionsv1.CustomResourceConversion {
	return &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ClientConfig: &apiextensionsv1.WebhookClientConfig{
				URL: ptr.To(h.url("/convert")), CABundle: h.caBundle,
			},
			ConversionReviewVersions: []string{"v1"},
		},
	}
}
