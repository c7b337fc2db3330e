package rig

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/manifests"
)

// webhooks is where a manager answers the API server.
type webhooks struct {
	// name is that of the manager; it keeps configurations apart, which all have the same name before kustomize.
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

// flags make a manager answer there. They are those that the managers of Cluster API have in common.
func (h *webhooks) flags(c *ControlPlane) []string {
	return []string{"--webhook-port=" + h.port.String(), "--webhook-cert-dir=" + c.folder}
}

func (h *webhooks) url(path string) string { return "https://" + h.port.address() + path }

// install registers the webhooks that a manifest lists.
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

// Trust does for a manifest what cert-manager and a Service do in a cluster: the API server finds the manager that is started with WebhookFlags, and trusts the
// certificate. It changes webhook configurations and the conversion of kinds, and leaves all other objects as they are.
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

// lead leads from a Service, of which there is none, to the manager's port on loopback.
func (h *webhooks) lead(object map[string]any, clientConfig ...string) error {
	path, found, err := unstructured.NestedString(object, append(clientConfig, "service", "path")...)
	if err != nil || !found {
		return errors.Join(err, errors.New("find the path of its Service: there is none"))
	}
	return unstructured.SetNestedMap(object, map[string]any{
		"url": h.url(path), "caBundle": base64.StdEncoding.EncodeToString(h.caBundle),
	}, clientConfig...)
}

// asked finds out whether the API server really asks the webhooks, by a MachineHealthCheck that they must refuse. It
// learns of their registration a moment after it stored it, and what it lets through until then was never checked.
//
// The object is applied rather than created: for two seconds after a kind is established, the API server lets every
// creation wait for two seconds.
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
